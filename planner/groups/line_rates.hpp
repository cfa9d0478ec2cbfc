// How fast the members of groups (hosts) that are on one line reach each other
// (algorithms/exchange.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// What has less than this share of the best rate, on its line or of all lines, is slow.
inline constexpr double kSlowShare = 0.95;

/// By line, then group.
using LineRates = std::vector<std::vector<Bandwidth>>;

/// What becomes of lines that need a third rank's help, as where an adapter is dead.
enum class LinesOverRanks : std::uint8_t {
  kLeftOut,  ///< they send nothing: their rate is 0
  kUsed,     ///< they share the helper's links with its own line
};

/// Of each group's member in both directions, to and from the group that it reaches best, while all
/// lines between two groups send. Where several lines share a link, each has an equal part of it.
LineRates line_rates(const topology::Topology& topology, topology::Router& router,
                     std::span<const topology::RankGroup> groups, std::size_t lines,
                     LinesOverRanks over_ranks);

}  // namespace rackrail::planner
