// Lower bounds of all-reduce from single cuts and from partitions (see queries.hpp for the reason
// why each holds). Up to 2(n−1) max-flows on one structure for the cuts, fewer where ranks are
// joined by wide links; per partition a max-flow
// within each group.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
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
#include "topology/tiers.hpp"

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
  bound.p = 1;
  bound.q = static_cast<std::int64_t>(least);
  bound.algbw = Bandwidth(bound.q);
  if (!bound.cut.links.empty()) bound.widest = bound.cut.links.front();
  bound.reason = "cut: " + describe_with_links(topology, bound.cut);
  return bound;
}

/// Of the messages that pass between groups.
enum class Way : std::uint8_t { kInto, kOutOf };

/// What may enter, or leave, the ranks of each of some groups of vertices: the smallest cut around
/// its ranks within the group, as behind a PCIe switch that lets in less than the NICs of the
/// machine do.
class GroupCuts {
 public:
  /// `group_of` by vertex: below `groups`, or kNoPart. Keeps references.
  GroupCuts(const Topology& topology, const std::vector<std::uint32_t>& group_of,
            std::size_t groups, Way way)
      : topology_(topology), group_of_(group_of), way_(way), members_(groups), ways_(groups) {
    for (std::uint32_t v = 0; v < group_of.size(); ++v) {
      if (group_of[v] != kNoPart) {
        place_.push_back(static_cast<std::uint32_t>(members_[group_of[v]].size()));
        members_[group_of[v]].push_back(v);
      } else {
        place_.push_back(kNoPart);
      }
    }
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const Link& link = topology.link(LinkId(l));
      if (const std::uint32_t group = group_of[near(link).index()];
          link.kind != LinkKind::kShared && group != kNoPart) {
        ways_[group].emplace_back(l);
      }
    }
  }

  /// Of all of them together.
  Capacity sum() const {
    Capacity all = 0;
    for (std::uint32_t group = 0; group < members_.size(); ++group) {
      all += passing(group).flow;
    }
    return all;
  }

  /// One of the links of the cut around the first group's ranks.
  std::optional<LinkId> binding_link() const { return passing(0).binding; }

 private:
  struct Passing {
    Capacity flow = 0;
    std::optional<LinkId> binding;
  };

  /// The end that is nearer to the group's ranks.
  NodeId near(const Link& link) const { return way_ == Way::kInto ? link.to : link.from; }
  NodeId far(const Link& link) const { return way_ == Way::kInto ? link.from : link.to; }

  // A flow from the ranks to whatever is not of the group, against the links where it enters.
  Passing passing(std::uint32_t group) const {
    const std::vector<std::uint32_t>& members = members_[group];
    FlowNetwork network(members.size());
    const FlowNetwork::Vertex ranks = network.add_vertex();
    const FlowNetwork::Vertex others = network.add_vertex();
    Capacity boundary = 0;
    const auto far_vertex = [&](const Link& link) -> FlowNetwork::Vertex {
      const bool is_inside = group_of_[far(link).index()] == group;
      return is_inside ? place_[far(link).index()] : others;
    };
    for (const LinkId id : ways_[group]) {
      const Link& link = topology_.link(id);
      const Capacity rate = link.bandwidth.bytes_per_second();
      network.add_arc(place_[near(link).index()], far_vertex(link), rate);
      boundary += far_vertex(link) == others ? rate : 0;
    }
    for (std::uint32_t i = 0; i < members.size(); ++i) {
      if (topology_.rank_of(NodeId(members[i])).has_value()) {
        network.add_arc(ranks, i, boundary + 1);  // never in the cut
      }
    }
    network.reset();
    Passing found{network.augment(ranks, others, boundary), {}};
    const std::vector<bool> is_near = network.reachable_from(ranks);
    const auto cut = std::ranges::find_if(ways_[group], [&](LinkId id) {
      const Link& link = topology_.link(id);
      return is_near[place_[near(link).index()]] && !is_near[far_vertex(link)];
    });
    if (cut != ways_[group].end()) {
      found.binding = *cut;
    }
    return found;
  }

  const Topology& topology_;
  const std::vector<std::uint32_t>& group_of_;
  const Way way_;
  std::vector<std::uint32_t> place_;                 ///< by vertex, in members_ of its group
  std::vector<std::vector<std::uint32_t>> members_;  ///< vertices, by group
  std::vector<std::vector<LinkId>> ways_;            ///< links whose near end is there, by group
};

using GroupOf = std::function<std::string(const Node&, bool is_rank)>;

/// Whether as much can go from each vertex to its neighbours as the other way.
bool is_alike_both_ways(const Topology& topology) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, Capacity> surplus;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    const auto [low, high] = std::minmax({link.from.value(), link.to.value()});
    const auto rate = static_cast<Capacity>(link.bandwidth.bytes_per_second());
    surplus[{low, high}] += link.from.value() == low ? rate : -rate;
  }
  return std::ranges::all_of(surplus, [](const auto& entry) { return entry.second == 0; });
}

/// M/T of a partition: capacity into its k groups, or out of them, over 2(k−1): every message that
/// enters a group has left another. None for a single group. `group_of` by vertex, below `count` or
/// kNoPart.
std::optional<AllReduceBound> partition(const Topology& topology, const char* what,
                                        const std::vector<std::uint32_t>& group_of,
                                        std::size_t count) {
  if (count < 2) return std::nullopt;
  const auto messages = static_cast<std::int64_t>(2 * (count - 1));
  std::optional<AllReduceBound> least;
  for (const Way way : {Way::kInto, Way::kOutOf}) {
    if (way == Way::kOutOf && is_alike_both_ways(topology)) break;
    const GroupCuts cuts(topology, group_of, count, way);
    const auto passing = static_cast<std::int64_t>(cuts.sum());
    if (least && passing / messages >= least->algbw.bytes_per_second()) continue;
    const std::int64_t common = std::gcd(messages, passing);
    least = AllReduceBound{.p = messages / common, .q = passing / common};
    least->widest = cuts.binding_link();
    least->algbw = Bandwidth(passing / messages);
    least->reason =
        fmt::format("partition into {} {}: {} {} them", count, what, to_string(Bandwidth(passing)),
                    way == Way::kInto ? "into" : "out of");
  }
  return least;
}

std::optional<AllReduceBound> partition(const Topology& topology, const char* what,
                                        const std::vector<std::uint32_t>& parts) {
  std::size_t count = 0;
  for (const std::uint32_t part : parts) {
    count = part == kNoPart ? count : std::max<std::size_t>(count, part + 1);
  }
  return partition(topology, what, parts, count);
}

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
  std::vector<std::uint32_t> numbers;
  for (const std::string& group : groups) {
    const auto found = with_ranks.find(group);
    numbers.push_back(found == with_ranks.end() ? kNoPart : found->second);
  }
  return partition(topology, what, numbers, with_ranks.size());
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
  // Where switches do not say whose they are.
  take(partition(topology, "racks", network_parts(topology, false)));
  take(partition(topology, "pods", network_parts(topology, true)));
  return best;
}

}  // namespace rackrail::topology
