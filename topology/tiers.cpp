#include "topology/tiers.hpp"

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/disjoint_sets.hpp"

namespace rackrail::topology {

namespace {

using Partition = std::vector<RankGroup>;

using Joins = std::function<bool(const Link&)>;

/// By vertex, the number of the part that links join for which `joins` holds.
std::vector<std::uint32_t> connected_vertices(const Topology& topology, const Joins& joins) {
  DisjointSets parts(topology.node_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    if (joins(link)) {
      parts.join(link.from.value(), link.to.value());
    }
  }
  return parts.numbers();
}

/// Ranks by such parts.
Partition connected_ranks(const Topology& topology, const Joins& joins) {
  const std::vector<std::uint32_t> part_of = connected_vertices(topology, joins);
  Partition groups;
  std::unordered_map<std::uint32_t, std::size_t> group_of;  // by part
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const NodeId node = topology.node_of(Rank(r));
    const auto [entry, is_new] = group_of.emplace(part_of[node.index()], groups.size());
    if (is_new) {
      groups.push_back({topology.node(node).name, {}});
    }
    groups[entry->second].ranks.push_back(Rank(r));
  }
  return groups;
}

Partition parts_of_hosts(const Topology& topology) {
  const auto is_between = [&](NodeId node) {
    return topology.node(node).kind == NodeKind::kCpu && !topology.rank_of(node);
  };
  return connected_ranks(topology, [&](const Link& link) {
    const std::string& host = topology.node(link.from).host;
    return !host.empty() && host == topology.node(link.to).host && !is_between(link.from) &&
           !is_between(link.to);
  });
}

/// Links without an end at a core switch or, without spines, at one of those.
Joins joins_below(const Topology& topology, bool with_spines) {
  const auto is_above = [&topology, with_spines](NodeId node) {
    const NodeKind kind = topology.node(node).kind;
    return kind == NodeKind::kCore || (kind == NodeKind::kSpine && !with_spines);
  };
  return [is_above](const Link& link) { return !is_above(link.from) && !is_above(link.to); };
}

/// Whether `outer` has fewer groups than there are `inner` ones, and parts none of them.
bool joins_groups(const Partition& outer, const Partition& inner, std::size_t ranks) {
  std::vector<std::size_t> group_of(ranks);
  for (std::size_t g = 0; g < outer.size(); ++g) {
    for (const Rank rank : outer[g].ranks) {
      group_of[rank.index()] = g;
    }
  }
  for (const RankGroup& group : inner) {
    for (const Rank rank : group.ranks) {
      if (group_of[rank.index()] != group_of[group.ranks.front().index()]) {
        return false;
      }
    }
  }
  return outer.size() < inner.size();
}

}  // namespace

std::vector<std::vector<RankGroup>> nested_groups(const Topology& topology) {
  const std::size_t ranks = topology.rank_count();
  Partition innermost = connected_ranks(topology, [](const Link&) { return false; });
  std::vector<Partition> nesting;
  for (Partition& candidate : std::vector<Partition>{
           parts_of_hosts(topology), ranks_by_host(topology), ranks_by_rack(topology),
           connected_ranks(topology, joins_below(topology, false)),
           connected_ranks(topology, joins_below(topology, true))}) {
    if (joins_groups(candidate, nesting.empty() ? innermost : nesting.back(), ranks)) {
      nesting.push_back(std::move(candidate));
    }
  }
  if (nesting.empty() || nesting.back().size() > 1) {
    nesting.push_back(connected_ranks(topology, [](const Link&) { return true; }));
  }
  return nesting;
}

std::vector<std::uint32_t> network_parts(const Topology& topology, bool with_spines) {
  const std::vector<std::uint32_t> part_of =
      connected_vertices(topology, joins_below(topology, with_spines));
  std::unordered_map<std::uint32_t, std::uint32_t> numbers;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    numbers.emplace(part_of[topology.node_of(Rank(r)).index()],
                    static_cast<std::uint32_t>(numbers.size()));
  }
  std::vector<std::uint32_t> result;
  result.reserve(part_of.size());
  for (const std::uint32_t part : part_of) {
    const auto found = numbers.find(part);
    result.push_back(found == numbers.end() ? kNoPart : found->second);
  }
  return result;
}

}  // namespace rackrail::topology
