// Ranks that are linked to one another, and nothing between them: a graph of cables.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::planner {

/// Two links between two ranks, opposite to each other.
struct Cable {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  LinkId there;     ///< from a to b
  LinkId back;      ///< from b to a
  double rate = 0;  ///< of the slower one, in bytes per second

  std::uint32_t other_end(std::uint32_t rank) const { return rank == a ? b : a; }
  LinkId from(std::uint32_t rank) const { return rank == a ? there : back; }
};

/// Links that have no opposite one are left out.
struct RankCables {
  std::vector<Cable> cables;
  std::vector<std::vector<std::uint32_t>> around;  ///< numbers of the cables of each rank

  /// The fewest cables in a row from a rank to each one; kFar where there are none.
  std::vector<std::uint32_t> distances(std::uint32_t from) const;
  static constexpr std::uint32_t kFar = 0xffffffff;
};

/// The least of what links of these rates, in bytes per second, carry over their rate at the
/// fullest of them, if all together carry `trees` in whole numbers.
double least_fullness(std::span<const double> rates, double trees);

/// Of what is that full: a part of it that rounding may make of the same.
inline constexpr double kSameFullness = 1e-9;

/// Whether paths lead from rank to rank over links, past nothing else. Shared resources
/// (LinkKind::kShared) and what they join are no paths.
bool are_ranks_joined_directly(const topology::Topology& topology);

/// None where ranks are not joined directly, or cables do not join all of them.
std::optional<RankCables> find_cables(const topology::Topology& topology);

}  // namespace rackrail::planner
