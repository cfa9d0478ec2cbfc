// Which line of members carries whose data where lines are not equally fast (exchange.hpp).
//
// Every rank owns as much of the buffer. If each line carried what its own members have, all would
// wait for the slowest one. So a line carries in proportion to its rate, and the data above that is
// lent to other lines. A lane is the part of one line's data that a line carries. With k groups
// lines then take (1 − 1/k) of the buffer over the sum of the rates. A group with a slow adapter on
// each slow line needs at least that to receive all that it lacks. Copies inside groups are not
// modelled: a member whose adapter receives more than it can copy to all others at once holds up
// the rest.
//
// Loads are whole units, what is left of rounding down goes where it makes the least load for a
// rate: so the largest load for a rate is the least that units allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"

namespace rackrail::planner {

struct LineLane {
  std::size_t line = 0;   ///< that carries it
  std::size_t owner = 0;  ///< whose data it is: a line
  std::uint32_t weight = 0;

  bool operator==(const LineLane&) const = default;
};
using LineLanes = std::vector<LineLane>;

/// What a line owns, where lines carry uneven loads.
inline constexpr std::uint32_t kLaneUnits = 1024;

/// By the rates of lines, each line's own first; a line of rate 0 carries nothing. None where no
/// rate is slow (line_rates.hpp), or there is none above 0.
LineLanes lanes_by_rates(std::span<const Bandwidth> rates);

/// Lines carry as much, and own all of it: of an all-reduce, before which nobody owns anything.
LineLanes without_lent(const LineLanes& lanes);

}  // namespace rackrail::planner
