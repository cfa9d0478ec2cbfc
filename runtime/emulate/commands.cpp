#include "runtime/emulate/commands.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rackrail::runtime::emulate {
namespace {

constexpr const char* kBridge = "bridge0";

std::string management_port(std::size_t host) { return fmt::format("host{}", host); }

std::string bridge_commands() {
  return fmt::format(
      "link add name {0} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
      "link set dev {0} mtu {1} up\n",
      kBridge, kMtu);
}

std::string address_commands(const std::string& address, const std::string& device) {
  return fmt::format("address add {}/{} dev {}\nlink set dev {} up\n", address, kPrefixLength,
                     device, device);
}

/// Connections over the data network send again what was lost after `kRetransmission`, not after
/// the kernel's 200 ms: links empty their queue in at most 25 ms, and where the last packets of all
/// that is under way are lost nothing else tells the sender.
std::string data_address_commands(const std::string& address, const std::string& device) {
  constexpr const char* kRetransmission = "60ms";  // besides what it takes there and back
  const std::string network = address.substr(0, address.find('.', address.find('.') + 1));
  return address_commands(address, device) +
         fmt::format("route change {}.0.0/{} dev {} proto kernel scope link src {} rto_min {}\n",
                     network, kPrefixLength, device, address, kRetransmission);
}

std::string shape(const std::string& device, Bandwidth rate) {
  const std::string text = tc_rate(rate);
  const std::int64_t burst = burst_size(rate).count();
  return fmt::format(
      "qdisc add dev {0} root handle 1: htb default 1\n"
      "class add dev {0} parent 1: classid 1:1 htb rate {1} ceil {1} burst {2} cburst {2} "
      "quantum {3}\n"
      "qdisc add dev {0} parent 1:1 handle 10: bfifo limit {4}\n",
      device, text, burst, 2 * kMtu, queue_limit(rate).count());
}

}  // namespace

Bytes queue_limit(Bandwidth rate) {
  return std::clamp(rate * 6_ms, Bytes(500'000), Bytes(750'000));
}

Bytes burst_size(Bandwidth rate) {
  constexpr Duration kAtOnce(500'000'000);  // 0.5 ms
  return std::max(64_KiB, rate * kAtOnce);
}

Bytes send_buffer(Bandwidth rate) {
  constexpr Bandwidth kSlow = 250_Mbps;
  return rate <= kSlow ? std::clamp(rate * 32_ms, 128_KiB, 1_MiB) : std::max(128_KiB, rate * 1_ms);
}

std::string tc_rate(Bandwidth rate) { return fmt::format("{}bps", rate.bytes_per_second()); }

std::string link_commands(const NetworkPlan& plan, const StationPath& path,
                          const std::string& management) {
  std::string text;
  const auto pair = [&](const std::string& device_a, const std::string& place_a,
                        const std::string& device_b, const std::string& place_b) {
    text += fmt::format(
        "link add name {0} netns {1} mtu {4} type veth peer name {2} netns {3} mtu {4}\n", device_a,
        place_a, device_b, place_b, kMtu);
  };
  for (const ShapedLink& link : plan.links) {
    pair(link.port_a, path(link.a), link.port_b, path(link.b));
  }
  for (std::size_t host = 0; host < plan.host_count; ++host) {
    pair(kManagementInterface, path(host), management_port(host), management);
  }
  return text;
}

std::string station_commands(const NetworkPlan& plan, std::size_t station) {
  std::string text = "link set dev lo up\n";
  const Station& self = plan.stations[station];
  if (self.is_host) {
    text += address_commands(self.management_address, kManagementInterface);
  } else {
    text += bridge_commands() + address_commands(self.address, kBridge);
  }
  const auto attach = [&](const std::string& port, const std::string& address) {
    text += self.is_host ? data_address_commands(address, port)
                         : fmt::format("link set dev {} master {} up\n", port, kBridge);
  };
  for (const ShapedLink& link : plan.links) {
    if (link.a == station) {
      attach(link.port_a, link.address_a);
    }
    if (link.b == station) {
      attach(link.port_b, link.address_b);
    }
  }
  return text;
}

std::string management_commands(const NetworkPlan& plan) {
  std::string text =
      "link set dev lo up\n" + bridge_commands() + address_commands(kLeaderAddress, kBridge);
  for (std::size_t host = 0; host < plan.host_count; ++host) {
    text += fmt::format("link set dev {} master {} up\n", management_port(host), kBridge);
  }
  return text;
}

std::string shaping_commands(const NetworkPlan& plan, std::size_t station) {
  std::string text;
  for (const ShapedLink& link : plan.links) {
    if (link.a == station) {
      text += shape(link.port_a, link.rate_ab);
    }
    if (link.b == station) {
      text += shape(link.port_b, link.rate_ba);
    }
  }
  return text;
}

}  // namespace rackrail::runtime::emulate
