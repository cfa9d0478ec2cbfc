// How a sender enforces the rate of a route (rule 8 of transfer_graph.hpp).
//
// A slice leaves in one piece, as fast as links take it. It delays the next slice over the same
// links to the same rank by its own time at the rate. So over a long time the sender keeps to the
// rate, and the first slice of a row arrives early. A late sender may catch up some milliseconds,
// for two reasons. Threads wake up late, and would fall behind more and more. And an all-reduce of
// some ten milliseconds would end before a pipeline is full whose routes begin one after the other.
// All routes over a link together may catch up what the link carries in that time, if their rates
// add up to its own. The queue before it should hold that much (6 to 16 ms of an emulated link,
// emulate::queue_limit). Measurements: results/planner-notes.md (section 'Rates on routes').
#pragma once

#include <algorithm>

#include "base/units.hpp"

namespace rackrail::plan {

/// The most that may be made up for, in time and in slices.
inline constexpr Duration kCatchUp = 5_ms;
inline constexpr int kSlicesToCatchUp = 8;

/// From when on the next slice may leave, after one that leaves `now` and takes `of_slice` at the
/// rate; `before`: from when on this one could; `catch_up`: kCatchUp, as a span of that clock.
template <typename Moment, typename Span>
constexpr Moment next_departure(Moment before, Moment now, Span of_slice, Span catch_up) {
  return std::max<Moment>(before, now - std::min<Span>(catch_up, kSlicesToCatchUp * of_slice)) +
         of_slice;
}

}  // namespace rackrail::plan
