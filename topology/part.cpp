#include "topology/part.hpp"

#include <optional>

namespace rackrail::topology {

Topology part_of(const Topology& topology, const std::vector<bool>& is_kept,
                 std::span<const Rank> ranks) {
  Topology part(topology.name());
  part.set_measured_processor(topology.measured_processor());
  std::vector<std::optional<NodeId>> node_of(topology.node_count());
  for (std::size_t i = 0; i < node_of.size(); ++i) {
    if (is_kept[i]) {
      node_of[i] = part.add_node(topology.node(NodeId(i)));
    }
  }
  std::vector<std::optional<LinkId>> link_of(topology.link_count());
  for (std::size_t i = 0; i < link_of.size(); ++i) {
    Link link = topology.link(LinkId(i));
    if (node_of[link.from.index()] && node_of[link.to.index()]) {
      link.from = *node_of[link.from.index()];
      link.to = *node_of[link.to.index()];
      link_of[i] = part.add_link(link);
    }
  }
  for (const Rank old : ranks) {
    const Rank rank = part.add_rank(node_of[topology.node_of(old).index()].value());
    const auto processor = topology.processor_of(old);
    if (processor && link_of[processor->index()]) {
      part.set_processor(rank, *link_of[processor->index()]);
    }
  }
  return part;
}

}  // namespace rackrail::topology
