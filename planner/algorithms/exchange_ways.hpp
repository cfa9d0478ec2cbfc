// How the members of one group pass on what each of them owns: what goes from whom to whom in which
// step (exchange.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/algorithms/exchange.hpp"

namespace rackrail::planner {

/// A transfer between members of a group, as one of a digit's way to its owner, or from there.
struct ExchangeArc {
  std::size_t run = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t step = 0;  ///< of the same chunk before it
  std::size_t left = 0;  ///< and after it, where that makes a difference
};

/// Values of a digit that one member owns, and that are moved together.
struct DigitRun {
  std::size_t begin = 0;
  std::size_t count = 1;
  std::size_t owner = 0;
};

/// In one direction, by steps; what has far to go first. `is_back`: rings go the other way round.
std::vector<ExchangeArc> arcs_of(Way way, std::size_t members, const std::vector<DigitRun>& runs,
                                 bool gathers, bool is_back);

/// How late what `owner` owns comes to a member (when copied), or how late the member passes it on
/// (when summed, counted from the end); 0 for its own. Not along trees.
std::size_t distance(Way way, std::size_t members, std::size_t member, std::size_t owner,
                     bool gathers, bool is_back);

/// Of what lies at such a distance; blocks grow by a factor (ExchangeLevel::growth).
std::size_t block_at(std::size_t distance, std::uint32_t growth);

}  // namespace rackrail::planner
