#include "runtime/coordinator/own_addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <array>
#include <memory>

namespace rackrail::runtime {
namespace {

constexpr std::string_view kAllV4 = "0.0.0.0";
constexpr std::string_view kAllV6 = "::";

/// Of an interface that is up, in figures; empty: not of this kind, or good on one link only.
std::string address_of(const ifaddrs& interface, bool takes_v6) {
  if (interface.ifa_addr == nullptr || (interface.ifa_flags & IFF_UP) == 0 ||
      (interface.ifa_flags & IFF_LOOPBACK) != 0) {
    return {};
  }
  const int family = interface.ifa_addr->sa_family;
  if (family != AF_INET && !(takes_v6 && family == AF_INET6)) {
    return {};
  }
  std::array<char, NI_MAXHOST> text{};
  const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  const bool is_known = getnameinfo(interface.ifa_addr, size, text.data(), text.size(), nullptr, 0,
                                    NI_NUMERICHOST) == 0;
  const std::string address = is_known ? text.data() : "";
  return address.starts_with("fe80:") ? "" : address;
}

}  // namespace

HostPort everywhere(const HostPort& meeting) {
  in6_addr ignored{};  // has room for either kind
  const bool is_number = inet_pton(AF_INET, meeting.host.c_str(), &ignored) == 1 ||
                         inet_pton(AF_INET6, meeting.host.c_str(), &ignored) == 1;
  return is_loopback(meeting.host) || is_number ? meeting
                                                : HostPort{std::string(kAllV4), meeting.port};
}

HostPort own_address(const HostPort& listening) {
  if (listening.host == kAllV4) {
    return {"127.0.0.1", listening.port};
  }
  return {listening.host == kAllV6 ? "::1" : listening.host, listening.port};
}

std::string addresses_for_others(const HostPort& listening) {
  const bool takes_v6 = listening.host == kAllV6;
  if (listening.host != kAllV4 && !takes_v6) {
    return to_string(listening);
  }
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) {
    return to_string(own_address(listening));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
  std::string all;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (const std::string address = address_of(*each, takes_v6); !address.empty()) {
      all += (all.empty() ? "" : " ") + to_string({address, listening.port});
    }
  }
  return all.empty() ? to_string(own_address(listening)) : all;
}

}  // namespace rackrail::runtime
