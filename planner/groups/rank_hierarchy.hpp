// Ranks in groups of groups: PCIe islands in hosts, hosts in racks, racks in pods; or the lines of
// a grid, its planes, and so on. What a multi-dimensional exchange (algorithms/exchange.hpp) goes
// through, one level after the other.
//
// At each level the groups of the level below are members of larger groups; at the lowest, ranks
// are. The last level has one group. Members are in the order of their first ranks, so those of
// several groups that deal with each other sit at the same place of their machines, whatever their
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "planner/groups/rank_grid.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

class RankHierarchy {
 public:
  struct Group {
    std::vector<std::size_t> members;  ///< groups of the level below; places of ranks at the lowest
    std::size_t ranks = 0;
    // In the group of the next level that it is a member of.
    std::size_t parent = 0;
    std::size_t position = 0;
  };
  using Level = std::vector<Group>;
  /// By rank: a number of its group, any.
  using Partition = std::vector<std::size_t>;

  /// `order` holds every rank once. Partitions become coarser; a last one of all ranks is added
  /// where it is missing.
  RankHierarchy(std::vector<Rank> order, std::span<const Partition> partitions);

  const std::vector<Level>& levels() const { return levels_; }
  const Level& level(std::size_t l) const { return levels_[l]; }
  Rank rank_at(std::size_t place) const { return order_[place]; }
  std::size_t rank_count() const { return order_.size(); }
  /// The most members that a group of the level has.
  std::size_t largest(std::size_t l) const;
  bool is_even(std::size_t l) const;  ///< whether groups of the level have as many members
  std::size_t group_of(Rank rank) const { return lowest_[rank.index()]; }  ///< of the lowest level

 private:
  std::vector<Rank> order_;
  std::vector<Level> levels_;
  std::vector<std::size_t> lowest_;  ///< by rank
};

/// Two levels: tier_groups() and all of them.
RankHierarchy groups_and_all(const topology::Topology& topology);

/// Every level that the cluster has (topology::nested_groups): parts of machines, machines, racks,
/// pods.
RankHierarchy all_levels(const topology::Topology& topology);

/// tier_groups() as a grid, its ranks at the lowest level. Of sides a, b, c, innermost first, a
/// groups follow one another in each of b, and those in each of c: levels are the groups, c that
/// are a·b apart, b that are a apart, and a neighbours. Their product is the number of groups.
RankHierarchy groups_in_grid(const topology::Topology& topology,
                             std::span<const std::size_t> sides);

/// The lines of a grid along the first of these dimensions, planes of the first two, and so on.
RankHierarchy lines_of_grid(const RankGrid& grid, std::span<const std::uint32_t> dimensions);

}  // namespace rackrail::planner
