#include "runtime/emulate/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "runtime/adapter_devices.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/tls.hpp"
#include "runtime/emulate/commands.hpp"
#include "runtime/emulate/leftovers.hpp"
#include "runtime/emulate/tools.hpp"

namespace rackrail::runtime::emulate {
namespace {

/// A setting below /proc/sys of the namespace that the calling thread is in.
void set(const std::string& name, const std::string& value) {
  std::ofstream file("/proc/sys/" + name);
  file << value << std::flush;
  if (!file) {
    throw RuntimeFailure("/proc/sys/" + name + " cannot be set to " + value);
  }
}

/// New Reno, because parallel flows share a bottleneck evenly with it, which BBR's do not in
/// shallow queues; and every connection starts without what an earlier one learnt. `send_buffer` is
/// the most that a connection holds of what its program has written.
void set_tcp(const NetworkNamespace& network, Bytes send_buffer) {
  const InNamespace inside(network);
  constexpr int kLeast = 4096;
  set("net/ipv4/tcp_wmem", fmt::format("{} {} {}", kLeast, 4 * kLeast, send_buffer.count()));
  set("net/ipv4/tcp_congestion_control", "reno");
  set("net/ipv4/tcp_no_metrics_save", "1");
  // Where there is IPv6: interfaces shall not announce themselves over it.
  if (std::ifstream("/proc/sys/net/ipv6/conf/all/disable_ipv6")) {
    set("net/ipv6/conf/all/disable_ipv6", "1");
    set("net/ipv6/conf/default/disable_ipv6", "1");
  }
}

Bandwidth fastest_link(const NetworkPlan& plan, std::size_t station) {
  Bandwidth fastest(0);
  for (const ShapedLink& link : plan.links) {
    if (link.a == station || link.b == station) {
      fastest = std::max({fastest, link.rate_ab, link.rate_ba});
    }
  }
  return fastest;
}

}  // namespace

EmulatedNetwork::EmulatedNetwork(NetworkPlan plan) : plan_(std::move(plan)) {
  remove_leftovers();
  const std::size_t count = plan_.stations.size();
  stations_.resize(count);
  names_.reserve(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    names_.emplace_back(stations_[i], namespace_name(plan_.stations[i].name));
  }
  names_.emplace_back(management_, namespace_name("management"));
  set_tcp(management_, send_buffer(Bandwidth(0)));
  for (std::size_t i = 0; i < count; ++i) {
    set_tcp(stations_[i], send_buffer(fastest_link(plan_, i)));
  }

  const auto path = [this](std::size_t i) { return stations_[i].path(); };
  run_batch("ip", link_commands(plan_, path, management_.path()), management_.descriptor());
  run_batch("ip", management_commands(plan_), management_.descriptor());
  for (std::size_t i = 0; i < count; ++i) {
    run_batch("ip", station_commands(plan_, i), stations_[i].descriptor());
    run_batch("tc", shaping_commands(plan_, i), stations_[i].descriptor());
  }
}

EmulatedNetwork::~EmulatedNetwork() { kill_own_processes(); }

void EmulatedNetwork::place(ChildCommand& command, Rank rank) const {
  const std::size_t host = plan_.host_of_rank[rank.index()];
  command.network_namespace = stations_[host].descriptor();
  constexpr std::size_t kLongestHostName = 64;  // of the kernel
  command.host_name = plan_.stations[host].name.substr(0, kLongestHostName);
  command.environment[kOwnerVariable] = owner_mark();
  command.environment["UCX_TLS"] = "tcp,self";
  command.environment["UCX_NET_DEVICES"] = kDataInterface;
  command.environment[kAdaptersVariable] = plan_.adapters[host];
  command.environment["GLOO_SOCKET_IFNAME"] = kDataInterface;
  command.environment["NCCL_SOCKET_IFNAME"] = kDataInterface;
  command.environment[kInsecureVariable] = "1";  // the network is this machine's own
}

void EmulatedNetwork::launch(ChildCommand& command, Rank number, const std::vector<Rank>& ranks,
                             const std::string& token) const {
  place(command, ranks[number.index()]);
  std::vector<std::size_t> hosts;
  for (const Rank rank : ranks) {
    hosts.push_back(plan_.host_of_rank[rank.index()]);
  }
  const auto self = hosts.begin() + static_cast<std::ptrdiff_t>(number.index());
  command.environment["RACKRAIL_RANK"] = std::to_string(number.index());
  command.environment["RACKRAIL_WORLD_SIZE"] = std::to_string(hosts.size());
  command.environment["RACKRAIL_LOCAL_RANK"] =
      std::to_string(std::count(hosts.begin(), self, *self));
  command.environment["RACKRAIL_COORDINATOR"] =
      fmt::format("{}:{}", plan_.stations[hosts.front()].management_address, kCoordinatorPort);
  command.environment[kJobTokenVariable] = token;
}

}  // namespace rackrail::runtime::emulate
