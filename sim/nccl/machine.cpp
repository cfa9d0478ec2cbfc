#include "sim/nccl/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "base/error.hpp"

namespace rackrail::sim::nccl {

namespace {

constexpr double kUnlimited = 1e14;  // bytes/s, where something else is the limit

double rate_of(const topology::Link& link) {
  return static_cast<double>(link.bandwidth.bytes_per_second());
}

/// A GPU's NVLinks together (one of them where there is a switch).
double nvlink_rate(const topology::Topology& cluster, Rank rank) {
  double sum = 0;
  for (const LinkId link : cluster.links_out_of(cluster.node_of(rank))) {
    if (cluster.link(link).kind == topology::LinkKind::kNvlink) {
      sum += rate_of(cluster.link(link));
    }
  }
  return sum;
}

bool is_between_switches(const topology::Topology& cluster, const topology::Link& link) {
  const auto is_switch = [&](NodeId node) {
    return cluster.node(node).host.empty() && !cluster.rank_of(node);
  };
  return is_switch(link.from) && is_switch(link.to);
}

Host describe(const topology::Topology& cluster, std::vector<Rank> ranks,
              topology::Router& router) {
  Host host;
  host.ranks = std::move(ranks);
  const std::size_t n = host.ranks.size();
  for (std::size_t i = 0; i < n; ++i) {
    double rate = nvlink_rate(cluster, host.ranks[i]);
    if (rate == 0) {
      host.hop = HopKind::kPcie;
      rate = std::numeric_limits<double>::max();
      if (n > 1) {
        const topology::Route& route = router.route(host.ranks[i], host.ranks[(i + 1) % n]);
        rate = static_cast<double>(topology::route_bandwidth(cluster, route).bytes_per_second());
      }
    }
    host.port_Bps.push_back(rate);
    for (const LinkId link : cluster.links_out_of(cluster.node_of(host.ranks[i]))) {
      const topology::Node& peer = cluster.node(cluster.link(link).to);
      host.has_sharp = host.has_sharp || (peer.kind == topology::NodeKind::kNvSwitch &&
                                          peer.multicasts && peer.reduces);
    }
  }
  return host;
}

/// What all rails of a pair get of the links between switches, at the pace of the slowest.
double rails_rate(const Machine& machine, HostPair pair, topology::Router& router,
                  const std::unordered_map<std::uint32_t, std::size_t>& users) {
  const topology::Topology& cluster = machine.cluster();
  double slowest = std::numeric_limits<double>::max();
  for (std::size_t r = 0; r < machine.gpus_per_node(); ++r) {
    for (const LinkId id : router.route(machine.hosts()[pair.first].ranks[r],
                                        machine.hosts()[pair.second].ranks[r])) {
      const topology::Link& link = cluster.link(id);
      if (is_between_switches(cluster, link)) {
        slowest = std::min(slowest, rate_of(link) / static_cast<double>(users.at(id.value())));
      }
    }
  }
  const auto rails = static_cast<double>(machine.gpus_per_node());
  return std::min(slowest, kUnlimited) * rails;
}

void count_users(const Machine& machine, HostPair pair, topology::Router& router,
                 std::unordered_map<std::uint32_t, std::size_t>& users) {
  for (std::size_t r = 0; r < machine.gpus_per_node(); ++r) {
    for (const LinkId id : router.route(machine.hosts()[pair.first].ranks[r],
                                        machine.hosts()[pair.second].ranks[r])) {
      ++users[id.value()];
    }
  }
}

/// Both directions: a NIC that is slow one way slows its rail.
double nic_rate(const Machine& machine, std::uint32_t host, std::uint32_t peer,
                topology::Router& router) {
  const topology::Topology& cluster = machine.cluster();
  // A rank that no machine is named for is a machine of its own.
  const NodeId first = cluster.node_of(machine.hosts()[host].ranks.front());
  const std::string& name = cluster.node(first).host;
  const auto is_own = [&](NodeId node) {
    return name.empty() ? node == first : cluster.node(node).host == name;
  };
  double slowest = kUnlimited;
  const std::array<HostPair, 2> both{HostPair{host, peer}, HostPair{peer, host}};
  for (const HostPair& pair : both) {
    std::unordered_map<std::uint32_t, std::size_t> users;
    count_users(machine, pair, router, users);
    for (const auto& [id, uses] : users) {
      const topology::Link& link = cluster.link(LinkId(id));
      const NodeId own_end = pair.first == host ? link.from : link.to;
      if (is_own(own_end)) {
        slowest = std::min(slowest, rate_of(link) / static_cast<double>(uses));
      }
    }
  }
  return slowest * static_cast<double>(machine.gpus_per_node());
}

}  // namespace

Machine::Machine(const topology::Topology& cluster, std::size_t nodes, std::size_t gpus_per_node)
    : cluster_(&cluster), gpus_per_node_(gpus_per_node) {
  std::vector<std::size_t> numbers(nodes);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  settle(numbers);
}

Machine::Machine(const topology::Topology& cluster, std::span<const std::size_t> hosts,
                 std::size_t gpus_per_node)
    : cluster_(&cluster), gpus_per_node_(gpus_per_node) {
  settle(hosts);
}

void Machine::settle(std::span<const std::size_t> numbers) {
  const auto groups = topology::ranks_by_host(*cluster_);
  topology::Router router(*cluster_);
  for (const std::size_t number : numbers) {
    if (number >= groups.size()) {
      throw ConfigError(ErrorContext{"", "cluster '" + cluster_->name() + "'",
                                     fmt::format("{} hosts", groups.size()),
                                     fmt::format("at least {}, as measured", number + 1)});
    }
    if (groups[number].ranks.size() < gpus_per_node_ || gpus_per_node_ == 0) {
      throw ConfigError(ErrorContext{
          "", fmt::format("cluster '{}', host {}", cluster_->name(), groups[number].name),
          fmt::format("{} GPUs", groups[number].ranks.size()),
          fmt::format("at least {}, as measured", gpus_per_node_)});
    }
    std::vector<Rank> ranks = groups[number].ranks;
    ranks.resize(gpus_per_node_);
    hosts_.push_back(describe(*cluster_, std::move(ranks), router));
  }
  if (rank_count() < 2) {
    throw ConfigError(ErrorContext{"", "cluster '" + cluster_->name() + "'", "one rank",
                                   "at least two, for a collective"});
  }
  const auto count = static_cast<std::uint32_t>(hosts_.size());
  for (std::uint32_t h = 0; count > 1 && h < count; ++h) {
    // Both directions: a NIC that is slow one way slows a rail.
    nic_Bps_.push_back(nic_rate(*this, h, (h + 1) % count, router));
  }
}

bool Machine::has_sharp() const {
  return gpus_per_node_ > 2 &&
         std::all_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.has_sharp; });
}

double Machine::port_Bps() const {
  double slowest = std::numeric_limits<double>::max();
  for (const Host& host : hosts_) {
    slowest = std::min(slowest, *std::min_element(host.port_Bps.begin(), host.port_Bps.end()));
  }
  return slowest;
}

double Machine::slowest_nic_Bps() const {
  return *std::min_element(nic_Bps_.begin(), nic_Bps_.end());
}

std::vector<double> fabric_rates(const Machine& machine, std::span<const HostPair> pairs) {
  topology::Router router(machine.cluster());
  std::unordered_map<std::uint32_t, std::size_t> users;
  for (const HostPair& pair : pairs) {
    count_users(machine, pair, router, users);
  }
  std::vector<double> rates;
  for (const HostPair& pair : pairs) {
    rates.push_back(rails_rate(machine, pair, router, users));
  }
  return rates;
}

}  // namespace rackrail::sim::nccl
