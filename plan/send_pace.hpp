// How a sender holds what leaves over a route to the route's rate (rule 8 of transfer_graph.hpp).
//
// A slice leaves in one piece, as fast as links take it, and moves the time from when on the next
// one over the same links to the same rank may leave on by what it takes at the rate. So what
// leaves in a long time is as much as the rate says, and the first of a row is there before. Who
// comes late may make up for some milliseconds: threads wake up late, and would fall behind more
// and more; and an all-reduce of some ten milliseconds would be over before a pipeline is full
// whose routes begin one after the other. What all routes over a link may make up for together is
// what it carries in that time, if their rates add up to its own, and the queue before it should
// hold that much (6 to 16 ms of an emulated link, emulate::queue_limit). 1 MiB over two racks of
// four hosts took 1.09 of the bound by a forest with such rates and 1.6 by one without, which lost
// four packets in each all-reduce (results/predictions.md).
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
