#include "topology/cuts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/parse_units.hpp"

namespace rackrail::topology {

FlowNetwork flow_network_of(const Topology& topology, Capacity scale, bool reversed) {
  FlowNetwork network(topology.node_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    const Capacity rate = link.kind == LinkKind::kShared ? 0 : link.bandwidth.bytes_per_second();
    network.add_arc(reversed ? link.to.value() : link.from.value(),
                    reversed ? link.from.value() : link.to.value(), rate * scale);
  }
  return network;
}

Cut cut_around(const Topology& topology, const std::vector<bool>& source_side, bool reversed) {
  Cut cut;
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (!source_side[v]) continue;
    cut.source_side.emplace_back(v);
    cut.ranks_inside += topology.rank_of(NodeId(v)) ? 1 : 0;
  }
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    const bool from = source_side[link.from.index()];
    const bool to = source_side[link.to.index()];
    if (link.kind != LinkKind::kShared && (reversed ? to && !from : from && !to)) {
      cut.links.emplace_back(l);
      cut.capacity = cut.capacity + link.bandwidth;
    }
  }
  return cut;
}

namespace {

/// Names of the groups that the ranks are made of, if they are whole ones.
std::optional<std::vector<std::string>> whole_groups(const std::vector<RankGroup>& groups,
                                                     const std::vector<bool>& is_inside) {
  std::vector<std::string> names;
  for (const RankGroup& group : groups) {
    const auto inside = std::count_if(group.ranks.begin(), group.ranks.end(), [&](Rank rank) {
      return static_cast<bool>(is_inside[rank.index()]);
    });
    if (inside == 0) continue;
    if (inside != static_cast<std::ptrdiff_t>(group.ranks.size()) || group.name.empty()) {
      return std::nullopt;
    }
    names.push_back(group.name);
  }
  return names;
}

/// The ranks on the smaller side, and whether the cut's links leave it.
struct CutSide {
  std::string ranks;
  bool is_left = false;
};

CutSide side_of(const Topology& topology, const Cut& cut, bool reversed) {
  const std::size_t ranks = topology.rank_count();
  std::vector<bool> is_inside(ranks);
  for (const NodeId v : cut.source_side) {
    if (const auto rank = topology.rank_of(v)) is_inside[rank->index()] = true;
  }
  const bool is_source_side = 2 * cut.ranks_inside <= ranks;
  if (!is_source_side) is_inside.flip();
  std::vector<RankGroup> single;
  for (std::size_t r = 0; r < ranks; ++r) {
    single.push_back({topology.node(topology.node_of(Rank(r))).name, {Rank(r)}});
  }
  auto names = whole_groups(ranks_by_rack(topology), is_inside);
  if (!names || names->size() == ranks_by_rack(topology).size()) {
    names = whole_groups(ranks_by_host(topology), is_inside);
  }
  if (!names) names = whole_groups(single, is_inside);
  constexpr std::size_t kShown = 4;
  const std::size_t count = names->size();
  const std::string more = count > kShown ? fmt::format(" and {} more", count - kShown) : "";
  names->resize(std::min(count, kShown));
  const std::size_t shown = is_source_side ? cut.ranks_inside : ranks - cut.ranks_inside;
  return {fmt::format("{} {} of {}{}", shown, shown == 1 ? "rank" : "ranks",
                      fmt::join(*names, ", "), more),
          is_source_side != reversed};
}

}  // namespace

std::string describe(const Topology& topology, const Cut& cut, bool reversed) {
  const CutSide side = side_of(topology, cut, reversed);
  return fmt::format("{}, {}", side.ranks, side.is_left ? "leaving" : "entering");
}

std::string describe_with_links(const Topology& topology, const Cut& cut, bool reversed) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> names;
  for (std::size_t l = 0; l < std::min(kShown, cut.links.size()); ++l) {
    names.push_back(topology.link_name(cut.links[l]));
  }
  const CutSide side = side_of(topology, cut, reversed);
  return fmt::format(
      "{} can {} at most {} together ({}{})", side.ranks, side.is_left ? "send" : "receive",
      rackrail::to_string(cut.capacity), fmt::join(names, ", "),
      cut.links.size() > kShown ? fmt::format(" and {} more", cut.links.size() - kShown) : "");
}

void require_collective(const Topology& topology) {
  if (topology.rank_count() < 2) {
    throw ConfigError(ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                                   fmt::format("{} ranks", topology.rank_count()),
                                   "at least 2, to have something to exchange"});
  }
  topology.require_connected();
}

MaxFlow max_flow(const Topology& topology, NodeId from, NodeId to) {
  if (from == to) {
    throw ConfigError(ErrorContext{"", fmt::format("cluster '{}'", topology.name()),
                                   "a flow from a vertex to itself", "two vertices"});
  }
  FlowNetwork network = flow_network_of(topology);
  network.reset();
  const Capacity value =
      network.augment(from.value(), to.value(), std::numeric_limits<std::int64_t>::max());
  MaxFlow result;
  result.value = Bandwidth(static_cast<std::int64_t>(value));
  result.cut = cut_around(topology, network.reachable_from(from.value()));
  return result;
}

}  // namespace rackrail::topology
