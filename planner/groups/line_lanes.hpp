// Which line of members carries whose data round its ring (group_rings.hpp), or along rings within
// rings (group_grids.hpp), where lines are not equally fast.
//
// Every rank owns as much of the buffer. If each line carried what its own members have, all would
// wait for the slowest one. So a line carries in proportion to its rate (uneven_lanes() of
// group_rings.hpp), and the data above that is lent to other lines. A lane is the part of one
// line's data that a line carries. With k groups lines then take (1 − 1/k) of the buffer over the
// sum of the rates. A group with a slow adapter on each slow line needs at least that to receive
// all that it lacks. Copies inside groups are not modelled: a member whose adapter receives more
// than it can copy to all others at once holds up the rest.
//
// Loads are whole units, what is left of rounding down goes where it makes the least load for a
// rate: so the largest load for a rate is the least that units allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "plan/transfer_graph.hpp"

namespace rackrail::planner {

struct LineLane {
  std::size_t owner = 0;  ///< whose data it is: a line
  std::uint32_t weight = 0;

  bool operator==(const LineLane&) const = default;
};
/// By line that carries them, in the order in which they set out.
using LineLanes = std::vector<std::vector<LineLane>>;

/// What a rank owns for each of its lines, where lines carry uneven loads.
inline constexpr std::uint32_t kLaneUnits = 1024;

/// Each line carries what its own members have.
LineLanes even_lanes(std::size_t lines);
/// By the rates of lines, each line's own first; a line of rate 0 carries nothing. None where no
/// rate is slow (line_rates.hpp), or there is none above 0.
LineLanes lanes_by_rates(std::span<const Bandwidth> rates);

/// These, or even ones where there are none. Throws PlanError where they are of another number of
/// lines, or are lent in an all-reduce, before which nobody owns anything.
LineLanes lanes_for(plan::Collective what, std::size_t lines, const LineLanes& lanes);

/// Lines carry as much, and own all of it.
LineLanes without_lent(const LineLanes& lanes);

/// What a line carries of each group's data as chunks, cut where owners change and where parts end.
struct LaneChunks {
  std::vector<std::uint32_t> weights;     ///< by chunk
  std::vector<std::size_t> owners;        ///< by chunk: lines
  std::vector<std::uint32_t> part_begin;  ///< by part its first chunk, then how many chunks
};
/// Parts have these shares of what the line carries; a lane of weight w has w times their sum.
LaneChunks lane_chunks(std::span<const LineLane> lanes, std::span<const std::uint32_t> parts);

}  // namespace rackrail::planner
