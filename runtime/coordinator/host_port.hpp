// A meeting place: host and TCP port.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rackrail::runtime {

/// A host name or address, and a TCP port.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

/// "host:port", with brackets around an IPv6 address.
std::string to_string(const HostPort& address);

/// Reads "host:port" or "[v6]:port". Throws ConfigError otherwise, with `where` (the option or the
/// variable) and `file` (where that is: "<environment>" for variables).
HostPort parse_host_port(std::string_view text, const std::string& where,
                         const std::string& file = "<command line>");

/// Whether only processes on this machine can reach it: 127.x.x.x, ::1, localhost.
bool is_loopback(std::string_view host);

}  // namespace rackrail::runtime
