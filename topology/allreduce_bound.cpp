// Lower bounds of all-reduce from single cuts and from partitions (see queries.hpp for the reason
// why each holds). Up to 2(n−1) max-flows on one structure for the cuts, fewer where ranks are
// joined by wide links; a sum per partition, and one max-flow for each of up to 512 groups.
#include <fmt/format.h>

#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "topology/cuts.hpp"
#include "topology/queries.hpp"

namespace rackrail::topology {
namespace {

/// Vertices that no cut of less than some capacity parts, because links of that capacity join them
/// in both directions: the first vertex of the set of each.
std::vector<std::uint32_t> joined_vertices(const Topology& topology, Capacity capacity) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, Capacity> between;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    if (link.kind != LinkKind::kShared) {
      between[{link.from.value(), link.to.value()}] += link.bandwidth.bytes_per_second();
    }
  }
  std::vector<std::uint32_t> set_of(topology.node_count());
  std::iota(set_of.begin(), set_of.end(), 0U);
  const auto find = [&](std::uint32_t v) {
    while (set_of[v] != v) {
      v = set_of[v] = set_of[set_of[v]];
    }
    return v;
  };
  for (const auto& [ends, there] : between) {
    const auto back = between.find({ends.second, ends.first});
    if (there >= capacity && back != between.end() && back->second >= capacity) {
      const std::uint32_t a = find(ends.first);
      const std::uint32_t b = find(ends.second);
      set_of[std::max(a, b)] = std::min(a, b);
    }
  }
  for (std::uint32_t v = 0; v < set_of.size(); ++v) {
    set_of[v] = find(v);
  }
  return set_of;
}

/// The smallest cut that parts two ranks, in either direction. Every such cut separates rank 0 from
/// some other one, and from all that is joined to that: one rank of each such set is looked at.
AllReduceBound smallest_cut(const Topology& topology) {
  AllReduceBound bound;
  Capacity least = std::numeric_limits<std::int64_t>::max();
  constexpr Capacity kWide = std::numeric_limits<std::int64_t>::max();
  const auto root = topology.node_of(Rank(0U)).value();
  std::vector<std::uint32_t> set_of(topology.node_count());
  std::iota(set_of.begin(), set_of.end(), 0U);
  for (const bool reversed : {false, true}) {
    // What no smaller cut parts from the root is joined to it by a wide arc, which makes the ways
    // to its neighbours short. The cut itself is found without those, close to the root.
    FlowNetwork network = flow_network_of(topology, 1, reversed);
    std::vector<FlowNetwork::Arc> joins;
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      joins.push_back(network.add_arc(root, topology.node_of(Rank(r)).value(), 0));
    }
    network.reset();
    network.remember_flow();
    std::vector<std::uint32_t> looked_at = {root};
    std::vector<bool> is_done(topology.node_count(), false);  // by the first vertex of a set
    const auto mark = [&] {
      for (const std::uint32_t vertex : looked_at) is_done[set_of[vertex]] = true;
      for (std::size_t r = 1; r < joins.size(); ++r) {
        if (is_done[set_of[topology.node_of(Rank(r)).value()]]) {
          network.open_arc(joins[r], kWide);
        }
      }
    };
    mark();
    for (std::size_t r = 1; r < topology.rank_count(); ++r) {
      const std::uint32_t vertex = topology.node_of(Rank(r)).value();
      if (is_done[set_of[vertex]]) continue;
      looked_at.push_back(vertex);
      is_done[set_of[vertex]] = true;
      const Capacity flow = network.augment(root, vertex, least);
      network.undo();
      // The ranks of a machine mostly follow each other.
      for (std::size_t i = r; i < joins.size(); ++i) {
        if (set_of[topology.node_of(Rank(i)).value()] != set_of[vertex]) break;
        network.open_arc(joins[i], kWide);
      }
      if (flow >= least) continue;
      least = flow;
      FlowNetwork plain = flow_network_of(topology, 1, reversed);
      plain.reset();
      plain.augment(root, vertex, kWide);
      std::vector<bool> side = plain.reachable_from(root);
      if (reversed) side.flip();  // then the links leave this side as they stand
      bound.cut = cut_around(topology, side);
      set_of = joined_vertices(topology, least);
      mark();
    }
  }
  bound.algbw = Bandwidth(static_cast<std::int64_t>(least));
  bound.reason = fmt::format("cut around {}: {}", names_of_ranks_in(topology, bound.cut),
                             to_string(bound.algbw));
  return bound;
}

/// Beyond this many groups their boundaries are taken as they are.
constexpr std::size_t kMostGroupsNarrowed = 512;

/// The vertices of some disjoint groups of ranks, each group drawn as narrowly as its ranks allow:
/// behind a PCIe switch, where that lets in less than the NICs of the machine.
class Boundaries {
 public:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  /// `group_of` by vertex: below `groups`, or kNone.
  Boundaries(const Topology& topology, std::vector<std::uint32_t> group_of, std::size_t groups)
      : topology_(topology),
        group_of_(std::move(group_of)),
        groups_(groups),
        entering_(groups),
        network_(flow_network_of(topology, 1, true)),
        inside_(network_.add_vertex()),
        outside_(network_.add_vertex()) {
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const Link& link = topology.link(LinkId(l));
      const std::uint32_t to = group_of_[link.to.index()];
      if (link.kind != LinkKind::kShared && to != kNone && to != group_of_[link.from.index()]) {
        entering_[to] += link.bandwidth.bytes_per_second();
      }
    }
  }

  /// Into all groups together.
  Capacity entering() {
    if (groups_ <= kMostGroupsNarrowed) {
      narrow_all();
    }
    return std::accumulate(entering_.begin(), entering_.end(), Capacity{0});
  }

 private:
  void narrow_all() {
    constexpr Capacity kWide = std::numeric_limits<std::int64_t>::max();
    std::vector<std::uint32_t> of_rank;
    std::vector<FlowNetwork::Arc> from;
    std::vector<FlowNetwork::Arc> to;
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      const NodeId vertex = topology_.node_of(Rank(r));
      of_rank.push_back(group_of_[vertex.index()]);
      from.push_back(network_.add_arc(inside_, vertex.value(), 0));
      to.push_back(network_.add_arc(vertex.value(), outside_, 0));
    }
    for (std::uint32_t group = 0; group < groups_; ++group) {
      for (std::size_t r = 0; r < of_rank.size(); ++r) {
        network_.set_capacity(from[r], of_rank[r] == group ? kWide : 0);
        network_.set_capacity(to[r], of_rank[r] == group ? 0 : kWide);
      }
      network_.reset();
      // Links are turned round: what flows out of the group is what may enter it.
      const Capacity flow = network_.augment(inside_, outside_, entering_[group]);
      if (flow < entering_[group]) {
        narrow(group, flow);
      }
    }
  }

  // To the source's side of the cut that was found, unless that is another group's in part.
  void narrow(std::uint32_t group, Capacity entering) {
    const std::vector<bool> side = network_.reachable_from(inside_);
    for (std::size_t v = 0; v < group_of_.size(); ++v) {
      if (side[v] && group_of_[v] != group && group_of_[v] != kNone) return;
    }
    for (std::size_t v = 0; v < group_of_.size(); ++v) {
      if (side[v]) {
        group_of_[v] = group;
      } else if (group_of_[v] == group) {
        group_of_[v] = kNone;
      }
    }
    entering_[group] = entering;
  }

  const Topology& topology_;
  std::vector<std::uint32_t> group_of_;
  std::size_t groups_;
  std::vector<Capacity> entering_;  ///< by group
  FlowNetwork network_;
  FlowNetwork::Vertex inside_;
  FlowNetwork::Vertex outside_;
};

using GroupOf = std::function<std::string(const Node&, bool is_rank)>;

/// M/T of a partition: capacity into its k groups over 2(k−1). None for a single group.
std::optional<AllReduceBound> partition(const Topology& topology, const char* what,
                                        const GroupOf& group_of) {
  std::vector<std::string> groups;
  std::map<std::string, std::uint32_t> with_ranks;  // numbered
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const bool is_rank = topology.rank_of(NodeId(v)).has_value();
    groups.push_back(group_of(topology.node(NodeId(v)), is_rank));
    if (is_rank) {
      // A rank outside all groups would be a group of its own: this partition is not for here.
      if (groups.back().empty()) return std::nullopt;
      with_ranks.emplace(groups.back(), static_cast<std::uint32_t>(with_ranks.size()));
    }
  }
  if (with_ranks.size() < 2) return std::nullopt;
  std::vector<std::uint32_t> numbers;
  for (const std::string& group : groups) {
    const auto found = with_ranks.find(group);
    numbers.push_back(found == with_ranks.end() ? Boundaries::kNone : found->second);
  }
  const Capacity entering = Boundaries(topology, std::move(numbers), with_ranks.size()).entering();
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
