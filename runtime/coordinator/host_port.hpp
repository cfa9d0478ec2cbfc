// A meeting place: host and TCP port.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rackrail::runtime {

/// A host name or address, and a TCP port; or a meeting place on this host (local_socket.hpp).
struct HostPort {
  std::string host;
  std::uint16_t port = 0;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

/// "host:port", with brackets around an IPv6 address.
std::string to_string(const HostPort& address);

/// Reads "host:port" or "[v6]:port", and what to_string() makes of a meeting on this host. Throws
/// ConfigError otherwise, with `where` (the option or the variable) and `file` (where that is:
/// "<environment>" for variables).
HostPort parse_host_port(std::string_view text, const std::string& where,
                         const std::string& file = "<command line>");

/// Whether only processes on this machine can reach it: 127.x.x.x, ::1, localhost, local meetings.
bool is_loopback(std::string_view host);

}  // namespace rackrail::runtime
