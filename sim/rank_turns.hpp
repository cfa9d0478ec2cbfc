// Cyclic rank symmetry: ranks in a table of groups and members, and cyclic shifts of the table.
//
// Rank (i, m) is member m of group i. A shift (a turn in names here) moves all ranks on by the same
// number of groups or of members. Shifts by different numbers commute. Those by multiples of two
// steps, which divide the table's sides, are a group of (k / groups) · (g / members) shifts. None
// of them, except the one by nothing, leaves a rank where it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

/// Steps of shifts: each divides its side of the table, and is the side itself where nothing moves.
struct Turns {
  std::uint32_t groups = 1;
  std::uint32_t members = 1;
  bool operator==(const Turns&) const = default;
};

class RankTable {
 public:
  /// Groups are hosts where one has several ranks, else racks; a single group of all ranks where
  /// these differ in size.
  explicit RankTable(const topology::Topology& topology);

  std::uint32_t groups() const { return groups_; }
  std::uint32_t members() const { return members_; }
  Turns no_turns() const { return {groups_, members_}; }
  /// How many ranks become one.
  std::uint32_t copies(Turns turns) const {
    return groups_ / turns.groups * (members_ / turns.members);
  }
  Rank turned(Rank rank, std::uint32_t by_groups, std::uint32_t by_members) const;
  /// The rank that represents all those that the shifts map this one to.
  Rank first(Rank rank, Turns turns) const;
  /// Where the shift that maps `rank` to its first() maps `other`.
  Rank turned_along(Rank other, Rank rank, Turns turns) const;

 private:
  Rank at(std::uint32_t group, std::uint32_t member) const {
    return ranks_[std::size_t{group} * members_ + member];
  }

  std::uint32_t groups_ = 1;
  std::uint32_t members_ = 1;
  std::vector<Rank> ranks_;            ///< by group, then by member
  std::vector<std::uint32_t> places_;  ///< by rank: in ranks_
};

}  // namespace rackrail::sim
