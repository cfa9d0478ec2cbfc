#include "planner/groups/rank_hierarchy.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "planner/groups/rank_groups.hpp"
#include "topology/tiers.hpp"

namespace rackrail::planner {

namespace {

RankHierarchy::Partition partition_of(std::span<const topology::RankGroup> groups,
                                      std::size_t ranks) {
  RankHierarchy::Partition partition(ranks);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Rank rank : groups[g].ranks) {
      partition[rank.index()] = g;
    }
  }
  return partition;
}

}  // namespace

RankHierarchy::RankHierarchy(std::vector<Rank> order, std::span<const Partition> partitions)
    : order_(std::move(order)) {
  std::vector<std::size_t> inner(order_.size());  // by place, the group of the level below
  std::iota(inner.begin(), inner.end(), 0);
  const auto add_level = [&](const Partition& partition) {
    Level level;
    std::map<std::size_t, std::size_t> number;
    for (std::size_t place = 0; place < order_.size(); ++place) {
      const auto [known, is_new] = number.emplace(partition[order_[place].index()], level.size());
      if (is_new) {
        level.emplace_back();
      }
      Group& group = level[known->second];
      ++group.ranks;
      group.members.push_back(inner[place]);
      inner[place] = known->second;
    }
    for (std::size_t g = 0; g < level.size(); ++g) {
      auto& members = level[g].members;
      std::ranges::sort(members);
      members.erase(std::ranges::unique(members).begin(), members.end());
      for (std::size_t i = 0; i < members.size() && !levels_.empty(); ++i) {
        levels_.back()[members[i]].parent = g;
        levels_.back()[members[i]].position = i;
      }
    }
    levels_.push_back(std::move(level));
  };
  for (const Partition& partition : partitions) {
    add_level(partition);
  }
  if (levels_.empty() || levels_.back().size() > 1) {
    add_level(Partition(order_.size(), 0));
  }
  lowest_.resize(order_.size());
  for (std::size_t g = 0; g < levels_.front().size(); ++g) {
    for (const std::size_t place : levels_.front()[g].members) {
      lowest_[order_[place].index()] = g;
    }
  }
}

std::size_t RankHierarchy::largest(std::size_t l) const {
  std::size_t largest = 0;
  for (const Group& group : levels_[l]) {
    largest = std::max(largest, group.members.size());
  }
  return largest;
}

bool RankHierarchy::is_even(std::size_t l) const {
  return std::ranges::all_of(levels_[l], [&](const Group& group) {
    return group.members.size() == levels_[l].front().members.size();
  });
}

RankHierarchy groups_and_all(const topology::Topology& topology) {
  const std::vector<RankHierarchy::Partition> groups = {
      partition_of(tier_groups(topology), topology.rank_count())};
  return {near_order(topology), groups};
}

RankHierarchy all_levels(const topology::Topology& topology) {
  std::vector<RankHierarchy::Partition> partitions;
  for (const auto& groups : topology::nested_groups(topology)) {
    partitions.push_back(partition_of(groups, topology.rank_count()));
  }
  return {near_order(topology), partitions};
}

RankHierarchy groups_in_grid(const topology::Topology& topology,
                             std::span<const std::size_t> sides) {
  const std::vector<topology::RankGroup> groups = tier_groups(topology);
  const RankHierarchy::Partition group_of = partition_of(groups, topology.rank_count());
  std::vector<Rank> order = near_order(topology);
  std::vector<std::size_t> place(groups.size(), SIZE_MAX);  // of a group in near order
  std::size_t next = 0;
  for (const Rank rank : order) {
    std::size_t& at = place[group_of[rank.index()]];
    at = at == SIZE_MAX ? next++ : at;
  }
  std::vector<RankHierarchy::Partition> partitions = {group_of};
  std::size_t apart = std::accumulate(sides.begin(), sides.end(), std::size_t{1},
                                      [](std::size_t a, std::size_t b) { return a * b; });
  for (auto side = sides.rbegin(); side != sides.rend(); ++side) {
    apart /= *side;
    RankHierarchy::Partition& partition = partitions.emplace_back(group_of.size());
    for (std::size_t r = 0; r < group_of.size(); ++r) {
      partition[r] = place[group_of[r]] % apart;  // those of all places that are so far apart
    }
  }
  return {std::move(order), partitions};
}

RankHierarchy lines_of_grid(const RankGrid& grid, std::span<const std::uint32_t> dimensions) {
  std::vector<Rank> order;
  for (std::size_t r = 0; r < grid.coordinates.size(); ++r) {
    order.emplace_back(r);
  }
  const auto number = [&](Rank rank, std::size_t without) {
    std::size_t of_place = 0;
    for (std::size_t i = dimensions.size(); i-- > without;) {
      of_place = of_place * grid.dimensions[dimensions[i]].size +
                 grid.coordinates[rank.index()][dimensions[i]];
    }
    return of_place;
  };
  std::ranges::sort(order, {}, [&](Rank rank) { return number(rank, 0); });
  std::vector<RankHierarchy::Partition> partitions;
  for (std::size_t l = 1; l <= dimensions.size(); ++l) {
    RankHierarchy::Partition& partition = partitions.emplace_back(order.size());
    for (const Rank rank : order) {
      partition[rank.index()] = number(rank, l);
    }
  }
  return {std::move(order), partitions};
}

}  // namespace rackrail::planner
