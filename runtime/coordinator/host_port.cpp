#include "runtime/coordinator/host_port.hpp"

#include <arpa/inet.h>

#include <charconv>

#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::string_view kLocal = "unix:";  // as local_socket.hpp has it

}  // namespace

std::string to_string(const HostPort& address) {
  if (address.host.starts_with(kLocal)) {
    return address.host;
  }
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

HostPort parse_host_port(std::string_view text, const std::string& where, const std::string& file) {
  if (text.starts_with(kLocal) && text.size() > kLocal.size() &&
      text.find_first_not_of("0123456789abcdef", kLocal.size()) == std::string_view::npos) {
    return {std::string(text), 0};
  }
  const std::size_t colon = text.rfind(':');
  const bool has_colon = colon != std::string_view::npos;
  std::string_view host = text.substr(0, has_colon ? colon : 0);
  const std::string_view digits = has_colon ? text.substr(colon + 1) : std::string_view();
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  }
  unsigned port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const bool bad_host = host.empty() || host.find_first_of("[] /\t") != std::string_view::npos ||
                        (!bracketed && host.find(':') != std::string_view::npos);
  if (bad_host || digits.empty() || error != std::errc{} || end != digits.data() + digits.size() ||
      port > 65'535) {
    throw ConfigError(ErrorContext{
        .file = file,
        .where = where,
        .found = text.empty() ? "an empty value" : "'" + std::string(text) + "'",
        .expected = "host:port with a port from 0 to 65535 (an IPv6 address in brackets)"});
  }
  return {std::string(host), static_cast<std::uint16_t>(port)};
}

bool is_loopback(std::string_view host) {
  if (host.starts_with(kLocal) || host == "localhost" || host == "::1") {
    return true;
  }
  in_addr address{};
  constexpr std::uint32_t kNetwork = 127;
  constexpr unsigned kShift = 24;
  return inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
         ntohl(address.s_addr) >> kShift == kNetwork;
}

}  // namespace rackrail::runtime
