#include "planner/algorithms/group_exchanges.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/algorithms/families.hpp"
#include "planner/groups/line_rates.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/packing/colours.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostLines = 64;
constexpr std::size_t kFewestGroupsUneven = 3;  // two are few enough for forests
constexpr std::size_t kFewestGroupsInGrids = 8;

/// Of groups in the order of their ring, how many each rack has, where all have as many and more
/// than one; else nothing.
std::optional<std::size_t> groups_of_a_rack(const topology::Topology& topology,
                                            const std::vector<topology::RankGroup>& groups) {
  std::vector<std::size_t> rack_of(topology.rank_count());
  const auto racks = topology::ranks_by_rack(topology);
  for (std::size_t rack = 0; rack < racks.size(); ++rack) {
    for (const Rank rank : racks[rack].ranks) {
      rack_of[rank.index()] = rack;
    }
  }
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto rack = [&](std::size_t group) { return rack_of[groups[group].ranks[0].index()]; };
    if (i == 0 || rack(i) != rack(i - 1)) {
      counts.push_back(0);
    }
    ++counts.back();
  }
  const bool are_alike =
      std::ranges::all_of(counts, [&](std::size_t count) { return count == counts[0]; });
  return are_alike && counts[0] > 1 && counts.size() > 1 ? std::optional(counts[0]) : std::nullopt;
}

/// All ways to write a number as so many factors of two and more.
std::vector<GridSides> factored(std::size_t number, std::size_t factors) {
  if (factors == 1) {
    return number > 1 ? std::vector<GridSides>{{number}} : std::vector<GridSides>{};
  }
  std::vector<GridSides> found;
  for (std::size_t first = 2; 2 * first <= number; ++first) {
    if (number % first == 0) {
      for (GridSides& rest : factored(number / first, factors - 1)) {
        rest.insert(rest.begin(), first);
        found.push_back(std::move(rest));
      }
    }
  }
  return found;
}

/// Whether rings are within racks, or of whole ones.
bool is_aligned(const GridSides& sides, std::optional<std::size_t> of_a_rack) {
  std::size_t together = 1;
  return !of_a_rack || std::ranges::all_of(sides, [&](std::size_t side) {
    together *= side;
    return *of_a_rack % together == 0 || together % *of_a_rack == 0;
  });
}

/// Of so many sides, those of the fewest hops whose inner rings are shorter than that.
std::optional<GridSides> sides_of_fewest_hops(const topology::Topology& topology,
                                              std::size_t factors, std::size_t shorter_than) {
  const std::vector<topology::RankGroup> groups = ring_of_groups(topology);
  if (groups.size() < kFewestGroupsInGrids) {
    return std::nullopt;
  }
  const std::optional<std::size_t> of_a_rack = groups_of_a_rack(topology, groups);
  std::vector<GridSides> all = factored(groups.size(), factors);
  std::erase_if(all, [&](const GridSides& of) { return of.front() >= shorter_than; });
  const auto first = std::ranges::min_element(all, {}, [&](const GridSides& of) {
    return std::pair(!is_aligned(of, of_a_rack), std::accumulate(of.begin(), of.end(), 0UL));
  });
  return first == all.end() ? std::nullopt : std::optional(*first);
}

Exchange over_groups(RankHierarchy hierarchy, Way across, std::string mechanism) {
  std::vector<ExchangeLevel> levels(hierarchy.levels().size(), {across, 0});
  levels.front() = {Way::kDirect, 1};
  return {
      "hierarchical", std::move(mechanism), {{std::move(hierarchy), std::move(levels), {}, {}}}};
}

}  // namespace

std::vector<topology::RankGroup> ring_of_groups(const topology::Topology& topology) {
  const std::vector<Rank> order = near_order(topology);
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i].index()] = i;
  }
  std::vector<topology::RankGroup> groups = tier_groups(topology);
  std::stable_sort(groups.begin(), groups.end(), [&](const auto& one, const auto& other) {
    return place[one.ranks.front().index()] < place[other.ranks.front().index()];
  });
  return groups;
}

std::size_t ring_lines(const std::vector<topology::RankGroup>& groups) {
  std::size_t lines = 1;
  for (const topology::RankGroup& group : groups) {
    lines = std::min(std::lcm(lines, group.ranks.size()), kMostLines + 1);
  }
  return lines;
}

std::optional<std::string> refuse_group_rings(const topology::Topology& topology,
                                              const TierCodecs& codecs) {
  const std::vector<topology::RankGroup> groups = tier_groups(topology);
  if (auto refusal = refuse_no_tiers(groups)) {
    return refusal;
  }
  if (ring_lines(groups) > kMostLines) {
    return "groups differ too much in size";
  }
  if (!(codecs.inside == codecs.across)) {
    return "what is passed on keeps its codec";
  }
  return refuse_lossy_hops(codecs);
}

LineLanes uneven_lanes(plan::Collective what, const ScheduleRequest& request) {
  const std::vector<topology::RankGroup> groups = ring_of_groups(request.topology);
  if (groups.size() < kFewestGroupsUneven || !are_ranks_unlike(request.topology)) {
    return {};
  }
  std::vector<Bandwidth> least;
  for (const std::vector<Bandwidth>& of_line :
       line_rates(request.topology, request.router, groups, ring_lines(groups),
                  LinesOverRanks::kLeftOut)) {
    least.push_back(std::ranges::min(of_line));
  }
  LineLanes lanes = lanes_by_rates(least);
  if (what == plan::Collective::kReduceScatter) {
    // Sums of what others own go on when they are whole, so they come first.
    std::ranges::stable_partition(lanes,
                                  [](const LineLane& lane) { return lane.owner != lane.line; });
  }
  return what == plan::Collective::kAllReduce ? without_lent(lanes) : lanes;
}

Exchange direct_exchange(const topology::Topology& topology,
                         const std::vector<std::uint32_t>& weights) {
  Exchange exchange = over_groups(
      groups_and_all(topology), Way::kDirect,
      fmt::format("direct exchange across groups{}", weights.empty() ? "" : " in unequal parts"));
  exchange.parts.front().weights = weights;
  return exchange;
}

Exchange ring_exchange(const topology::Topology& topology, const GridSides& sides,
                       const LineLanes& lanes) {
  Exchange exchange =
      over_groups(groups_in_grid(topology, sides), Way::kRing,
                  fmt::format("rings of groups per rail{}{}{}", sides.size() > 1 ? " over " : "",
                              sides.size() > 1 ? fmt::format("{}", fmt::join(sides, "x")) : "",
                              lanes.empty() ? "" : " in unequal parts"));
  exchange.parts.front().lanes = lanes;
  return exchange;
}

Exchange level_exchange(const topology::Topology& topology) {
  RankHierarchy hierarchy = all_levels(topology);
  const std::size_t levels = hierarchy.levels().size();
  return {"hierarchical",
          fmt::format("{} levels", levels),
          {{std::move(hierarchy), std::vector<ExchangeLevel>(levels), {}, {}}}};
}

std::vector<GridSides> group_grid_sides(const topology::Topology& topology) {
  std::vector<GridSides> sides = two_sides(topology);
  sides.resize(std::min<std::size_t>(sides.size(), 2));
  if (const auto three = sides_of_fewest_hops(topology, 3, SIZE_MAX)) {
    sides.push_back(*three);
  }
  return sides;
}

std::vector<GridSides> two_sides(const topology::Topology& topology) {
  std::vector<GridSides> sides;
  for (auto two = sides_of_fewest_hops(topology, 2, SIZE_MAX); two;
       two = sides_of_fewest_hops(topology, 2, (two->front() + 1) / 2 + 1)) {
    sides.push_back(*two);
  }
  return sides;
}

}  // namespace rackrail::planner
