#include "topology/racks.hpp"

#include <optional>
#include <utility>

namespace rackrail::topology {

std::vector<std::string> racks_by_tor(const Topology& topology) {
  std::vector<std::optional<NodeId>> tors(topology.node_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    for (const auto& [end, other] :
         {std::pair(link.from, link.to), std::pair(link.to, link.from)}) {
      if (!topology.rank_of(end)) {
        continue;
      }
      std::optional<NodeId>& tor = tors[end.index()];
      if (topology.node(other).kind != NodeKind::kTor || (tor && *tor != other)) {
        return {};
      }
      tor = other;
    }
  }
  std::vector<std::string> racks(topology.node_count());
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const NodeId rank = topology.node_of(Rank(r));
    if (!tors[rank.index()]) {
      return {};
    }
    racks[rank.index()] = topology.node(*tors[rank.index()]).name;
  }
  return racks;
}

void name_racks(Topology& topology) {
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (!topology.node(NodeId(v)).rack.empty()) {
      return;
    }
  }
  const std::vector<std::string> racks = racks_by_tor(topology);
  for (std::size_t v = 0; v < racks.size(); ++v) {
    Node node = topology.node(NodeId(v));
    node.rack = racks[v];
    topology.set_node_properties(NodeId(v), std::move(node));
  }
}

}  // namespace rackrail::topology
