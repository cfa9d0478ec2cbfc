// Lower bounds of all-reduce from single cuts and from partitions (see queries.hpp for the reason
// why each holds). 2(n−1) max-flows on one structure for the cuts, a sum per partition.
#include <fmt/format.h>

#include <functional>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "topology/cuts.hpp"
#include "topology/queries.hpp"

namespace rackrail::topology {
namespace {

/// The smallest cut that parts two ranks, in either direction. Every such cut separates rank 0 from
/// some other one.
AllReduceBound smallest_cut(const Topology& topology) {
  AllReduceBound bound;
  Capacity least = std::numeric_limits<std::int64_t>::max();
  const auto root = topology.node_of(Rank(0U)).value();
  for (const bool reversed : {false, true}) {
    FlowNetwork network = flow_network_of(topology, 1, reversed);
    for (std::size_t r = 1; r < topology.rank_count(); ++r) {
      network.reset();
      const Capacity flow = network.augment(root, topology.node_of(Rank(r)).value(), least);
      if (flow >= least) continue;
      least = flow;
      std::vector<bool> side = network.reachable_from(root);
      if (reversed) side.flip();  // then the links leave this side as they stand
      bound.cut = cut_around(topology, side);
    }
  }
  bound.algbw = Bandwidth(static_cast<std::int64_t>(least));
  bound.reason = fmt::format("cut around {}: {}", names_of_ranks_in(topology, bound.cut),
                             to_string(bound.algbw));
  return bound;
}

using GroupOf = std::function<std::string(const Node&, bool is_rank)>;

/// M/T of a partition: capacity into its k groups over 2(k−1). None for a single group.
std::optional<AllReduceBound> partition(const Topology& topology, const char* what,
                                        const GroupOf& group_of) {
  std::vector<std::string> groups;
  std::set<std::string> with_ranks;
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const bool is_rank = topology.rank_of(NodeId(v)).has_value();
    groups.push_back(group_of(topology.node(NodeId(v)), is_rank));
    if (is_rank) {
      // A rank outside all groups would be a group of its own: this partition is not for here.
      if (groups.back().empty()) return std::nullopt;
      with_ranks.insert(groups.back());
    }
  }
  if (with_ranks.size() < 2) return std::nullopt;
  Capacity entering = 0;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    const std::string& to = groups[link.to.index()];
    if (link.kind != LinkKind::kShared && to != groups[link.from.index()] &&
        with_ranks.contains(to)) {
      entering += link.bandwidth.bytes_per_second();
    }
  }
  const auto k = static_cast<Capacity>(with_ranks.size());
  AllReduceBound bound;
  bound.algbw = Bandwidth(static_cast<std::int64_t>(entering / (2 * (k - 1))));
  bound.reason = fmt::format("partition into {} {}: {} into them", with_ranks.size(), what,
                             to_string(Bandwidth(static_cast<std::int64_t>(entering))));
  return bound;
}

}  // namespace

AllReduceBound allreduce_bound(const Topology& topology, bool in_network) {
  require_collective(topology);
  AllReduceBound best = smallest_cut(topology);
  if (in_network) return best;
  const auto take = [&best](std::optional<AllReduceBound> bound) {
    if (bound && bound->algbw < best.algbw) best = std::move(*bound);
  };
  take(partition(topology, "ranks",
                 [](const Node& node, bool is_rank) { return is_rank ? node.name : ""; }));
  take(partition(topology, "hosts", [](const Node& node, bool) { return node.host; }));
  take(partition(topology, "racks", [](const Node& node, bool) { return node.rack; }));
  return best;
}

}  // namespace rackrail::topology
