// The pieces of each rank's data that follow one another along a ring of groups (group_rings.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::planner {

/// Which way round pieces go: all the same, or every other one back. A message's overhead keeps its
/// pair of ranks from sending, not the link: with pieces to both neighbours another one has it.
enum class RingWays : std::uint8_t { kOne, kBoth };

/// A piece of a rank's data. What is sent across first when sums are made, and last when they are
/// copied, is in parts: the less it is, the less others wait for it inside groups.
struct RingPiece {
  std::vector<std::uint32_t> parts;  ///< weights
  bool is_first = false;             ///< in parts at the first hop of a reduction
  bool is_last = false;              ///< in parts at the last hop of copies

  std::uint32_t weight() const;
};

/// So many of a collective, at least one, in the order in which they set out; every other one goes
/// back where they go in both directions.
std::vector<RingPiece> ring_pieces(plan::Collective what, std::size_t count, RingWays ways);

}  // namespace rackrail::planner
