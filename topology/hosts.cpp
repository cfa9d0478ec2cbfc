#include "topology/hosts.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "base/disjoint_sets.hpp"

namespace rackrail::topology {
namespace {

bool is_part_of_machine(NodeKind kind) {
  return kind == NodeKind::kGpu || kind == NodeKind::kCpu || kind == NodeKind::kPciSwitch ||
         kind == NodeKind::kNic || kind == NodeKind::kNvSwitch;
}

bool is_nvlink_of_gpus(const Topology& topology, const Link& link) {
  return link.kind == LinkKind::kNvlink && topology.node(link.from).kind == NodeKind::kGpu &&
         topology.node(link.to).kind == NodeKind::kGpu;
}

/// Vertices that are in one machine, if an NVSwitch or an NVLink is in it.
DisjointSets parts_of_machines(const Topology& topology) {
  DisjointSets machines(topology.node_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    const NodeKind from = topology.node(link.from).kind;
    const NodeKind to = topology.node(link.to).kind;
    const bool may_lead_out = from == to && (from == NodeKind::kGpu || from == NodeKind::kNic) &&
                              !is_nvlink_of_gpus(topology, link);
    if (is_part_of_machine(from) && is_part_of_machine(to) && !may_lead_out) {
      machines.join(link.from.value(), link.to.value());
    }
  }
  return machines;
}

/// Of machines with an NVSwitch, or with an NVLink between GPUs.
std::map<std::uint32_t, std::string> machine_names(const Topology& topology,
                                                   const std::vector<std::uint32_t>& machine_of) {
  std::set<std::uint32_t> meshed;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    if (const Link& link = topology.link(LinkId(l)); is_nvlink_of_gpus(topology, link)) {
      meshed.insert(machine_of[link.from.index()]);
    }
  }
  std::map<std::uint32_t, std::string> names;
  for (const NodeKind kind : {NodeKind::kNvSwitch, NodeKind::kGpu}) {
    for (std::size_t v = 0; v < topology.node_count(); ++v) {
      const Node& node = topology.node(NodeId(v));
      if (node.kind == kind && (kind == NodeKind::kNvSwitch || meshed.contains(machine_of[v]))) {
        names.emplace(machine_of[v], node.name);
      }
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> hosts_by_structure(const Topology& topology) {
  const std::vector<std::uint32_t> machine_of = parts_of_machines(topology).numbers();
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (!topology.node(NodeId(v)).host.empty()) {
      return {};
    }
  }
  std::map<std::uint32_t, std::string> names = machine_names(topology, machine_of);
  std::map<std::uint32_t, std::size_t> ranks;  // by machine with a name
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const std::uint32_t machine = machine_of[topology.node_of(Rank(r)).index()];
    if (names.contains(machine)) {
      ++ranks[machine];
    }
  }
  const auto has_many = [](const auto& machine) { return machine.second > 1; };
  if (std::ranges::none_of(ranks, has_many) || ranks.begin()->second == topology.rank_count()) {
    return {};
  }
  std::vector<std::string> hosts(topology.node_count());
  for (std::size_t v = 0; v < hosts.size(); ++v) {
    if (ranks.contains(machine_of[v])) {
      hosts[v] = names[machine_of[v]];
    }
  }
  return hosts;
}

std::size_t name_hosts(Topology& topology) {
  const std::vector<std::string> hosts = hosts_by_structure(topology);
  std::set<std::string> names;
  for (std::size_t v = 0; v < hosts.size(); ++v) {
    if (!hosts[v].empty()) {
      Node node = topology.node(NodeId(v));
      node.host = hosts[v];
      topology.set_node_properties(NodeId(v), node);
      names.insert(hosts[v]);
    }
  }
  return names.size();
}

}  // namespace rackrail::topology
