#include "topology/readers/fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace rackrail::topology {
namespace {

/// Vertices and links, together: what takes about two gigabytes. A few lines can ask for billions.
constexpr std::int64_t kMostParts = 8'000'000;

std::int64_t parts_of(const Topology& topology) {
  return static_cast<std::int64_t>(topology.node_count() + topology.link_count());
}

/// Above so many leaves in so many racks.
std::int64_t size_of_network(const Network& network, std::int64_t leaves, std::int64_t racks) {
  const auto count = [](const std::optional<SwitchTier>& tier) {
    return std::int64_t{tier ? tier->count : 0};
  };
  if (network.wiring == Wiring::kFatTree) {
    const std::int64_t pods = racks / network.racks_per_pod;
    return (2 * leaves + pods) * count(network.spine) + (2 * pods + 1) * count(network.core);
  }
  return (2 * leaves + 1) * (count(network.spine) + count(network.core));
}

/// A switch that is built, with what its links downward carry in one direction.
struct Switch {
  NodeId node;
  Bandwidth downward;
};

NodeId add_switch(Topology& topology, std::string name, NodeKind kind, bool multicasts,
                  bool reduces) {
  Node node;
  node.name = std::move(name);
  node.kind = kind;
  node.multicasts = multicasts;
  node.reduces = reduces;
  return topology.add_node(std::move(node));
}

std::vector<Switch> add_switches(Topology& topology, const SwitchTier& tier, NodeKind kind,
                                 const std::string& prefix) {
  std::vector<Switch> switches;
  switches.reserve(static_cast<std::size_t>(tier.count));
  for (int i = 0; i < tier.count; ++i) {
    switches.push_back(
        {add_switch(topology, prefix + std::to_string(i), kind, tier.multicasts, tier.reduces),
         Bandwidth(0)});
  }
  return switches;
}

/// Joins a switch to each of the upper ones; `uppers` of the tier's switches are within its reach.
void join(Topology& topology, Switch& lower, std::span<Switch> uppers, const SwitchTier& tier) {
  const Bandwidth rate = tier.oversubscription
                             ? scaled(lower.downward, 1.0 / (*tier.oversubscription *
                                                             static_cast<double>(uppers.size())))
                             : tier.link.bandwidth * tier.cables;
  for (Switch& upper : uppers) {
    Link link;
    link.from = lower.node;
    link.to = upper.node;
    link.bandwidth = rate;
    link.latency = tier.link.latency;
    link.kind = LinkKind::kUplink;
    link.tier = tier.tier;
    link.flow_bandwidth = tier.link.flow_bandwidth;
    topology.add_duplex_link(std::move(link));
    upper.downward = upper.downward + rate;
  }
}

void plug(Topology& topology, const Port& port, Switch& leaf) {
  Link link;
  link.from = port.node;
  link.to = leaf.node;
  link.bandwidth = port.link.bandwidth;
  link.latency = port.link.latency;
  link.kind = LinkKind::kHostLink;
  link.tier = "nic";
  link.overhead = port.link.overhead;
  link.receive_overhead = port.link.receive_overhead;
  link.flow_bandwidth = port.link.flow_bandwidth;
  link.cpu_share = port.link.cpu_share;
  link.adapter = port.adapter;
  topology.add_duplex_link(std::move(link));
  leaf.downward = leaf.downward + port.link.bandwidth;
}

/// A leaf and the plane that it is of.
struct Leaf {
  Switch leaf;
  std::size_t plane = 0;
};

/// The leaves of one rack with its machines plugged in: in each plane one ToR, or one leaf per
/// rail.
std::vector<Leaf> add_leaves(Topology& topology, int rack, const Network& network,
                             const std::vector<std::vector<Port>>& hosts) {
  const bool has_rails = network.wiring == Wiring::kRailOptimised;
  const auto planes = static_cast<std::size_t>(network.planes);
  std::vector<Leaf> leaves;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> numbers;  // by rail and plane
  const auto leaf_of = [&](std::size_t rail, std::size_t plane) -> Leaf& {
    const auto [place, is_new] = numbers.emplace(std::pair(rail, plane), leaves.size());
    if (is_new) {
      std::string name =
          has_rails ? fmt::format("leaf{}.{}", rack, rail) : fmt::format("tor{}", rack);
      if (planes > 1) name += fmt::format(".{}", plane);
      leaves.push_back({{add_switch(topology, std::move(name), NodeKind::kTor,
                                    network.tor_multicasts, network.tor_reduces),
                         Bandwidth(0)},
                        plane});
    }
    return leaves[place->second];
  };
  if (!has_rails && planes == 1) leaf_of(0, 0);
  for (const std::vector<Port>& ports : hosts) {
    for (std::size_t port = 0; port < ports.size(); ++port) {
      plug(topology, ports[port], leaf_of(has_rails ? ports[port].nic : 0, port % planes).leaf);
    }
  }
  return leaves;
}

void join_leaf_spine(Topology& topology, const Network& network,
                     std::vector<std::vector<Leaf>>& leaves) {
  const bool has_spine = network.spine.has_value();
  const SwitchTier& tier = has_spine ? *network.spine : *network.core;
  std::vector<Switch> uppers = add_switches(
      topology, tier, has_spine ? NodeKind::kSpine : NodeKind::kCore, has_spine ? "spine" : "core");
  const std::size_t per_plane = uppers.size() / static_cast<std::size_t>(network.planes);
  for (std::vector<Leaf>& rack : leaves) {
    for (auto& [leaf, plane] : rack) {
      join(topology, leaf, std::span(uppers).subspan(plane * per_plane, per_plane), tier);
    }
  }
}

// Core c belongs to the plane of spine c / (cores per spine) of every pod, as in a k-ary fat tree.
void join_fat_tree(Topology& topology, const Network& network,
                   std::vector<std::vector<Leaf>>& leaves) {
  const auto per_pod = static_cast<std::size_t>(network.racks_per_pod);
  std::vector<std::vector<Switch>> spines;
  for (std::size_t rack = 0; rack < leaves.size(); ++rack) {
    if (rack % per_pod == 0) {
      spines.push_back(add_switches(topology, *network.spine, NodeKind::kSpine,
                                    fmt::format("spine{}.", rack / per_pod)));
    }
    for (Leaf& leaf : leaves[rack]) join(topology, leaf.leaf, spines.back(), *network.spine);
  }
  std::vector<Switch> cores = add_switches(topology, *network.core, NodeKind::kCore, "core");
  const std::size_t per_plane = cores.size() / static_cast<std::size_t>(network.spine->count);
  for (std::vector<Switch>& pod : spines) {
    for (std::size_t s = 0; s < pod.size(); ++s) {
      join(topology, pod[s], std::span(cores).subspan(s * per_plane, per_plane), *network.core);
    }
  }
}

}  // namespace

void require_buildable(std::int64_t parts) {
  if (parts > kMostParts) {
    throw ConfigError(ErrorContext{"", "racks and network",
                                   fmt::format("{} vertices and links", parts),
                                   fmt::format("a cluster of at most {}", kMostParts)});
  }
}

void build_cluster(Topology& topology, const std::vector<RackGroup>& racks, const Network& network,
                   const HostFactory& add_host) {
  std::vector<std::vector<std::vector<Port>>> ports;  // by rack, host, NIC
  int number = 0;
  std::int64_t parts = 0;
  for (const RackGroup& group : racks) {
    const std::int64_t before = parts_of(topology);
    for (int r = 0; r < group.count; ++r) {
      const std::string rack = fmt::format("rack{}", ports.size());
      ports.emplace_back();
      for (int h = 0; h < group.hosts; ++h, ++number) {
        ports.back().push_back(
            add_host(topology, {number, fmt::format("host{}", number), rack, group.type, h}));
        if (r == 0 && h == 0) {
          parts += (parts_of(topology) - before) * group.count * group.hosts;
          require_buildable(parts);
        }
      }
    }
  }
  if (number == 1) return;  // one machine needs no network
  std::vector<std::vector<Leaf>> leaves;
  std::size_t leaf_count = 0;
  for (const std::vector<std::vector<Port>>& rack : ports) {
    leaf_count += network.wiring == Wiring::kRailOptimised
                      ? rack.front().size()
                      : static_cast<std::size_t>(network.planes);
  }
  require_buildable(parts + size_of_network(network, static_cast<std::int64_t>(leaf_count),
                                            static_cast<std::int64_t>(ports.size())));
  for (std::size_t r = 0; r < ports.size(); ++r) {
    leaves.push_back(add_leaves(topology, static_cast<int>(r), network, ports[r]));
  }
  if (network.wiring == Wiring::kFatTree) {
    join_fat_tree(topology, network, leaves);
  } else if (network.wiring != Wiring::kSingleSwitch) {
    join_leaf_spine(topology, network, leaves);
  }
}

}  // namespace rackrail::topology
