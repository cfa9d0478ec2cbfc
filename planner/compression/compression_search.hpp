// Which option each bucket takes, so that the step of a Timeline is shortest.
//
// 1. Starts: the choices that the caller gives (uniform ones), and each bucket's option that is
//    fastest alone.
// 2. Bucket by bucket, partial choices are kept as labels: when each resource is free, what is
//    delayed, what is done. A label that is nowhere earlier than another one, or whose bound (the
//    least tail of what follows) is not below the best choice known, is dropped. As long as no more
//    than `labels` remain per bucket this is exact; beyond it the ones with the best bound go on.
// 3. Local moves from every choice so far: one bucket at a time, then two at a time within a
//    window, each in O(resources) by a prefix and a tail.
//
// lighten() then gives up speed for accuracy: what is sent before a bubble need not be encoded as
// strongly. Largest harm first, each bucket takes the option of least harm that keeps the step
// within a limit. (Dropping tensors before bubbles and taking large ones first are ideas of
// Espresso: Wang et al., EuroSys 2023; there per tensor by greedy passes, here on top of labels.)
//
// No random numbers, no clock: the same problem gives the same choice on every machine.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/compression/compression_timeline.hpp"

namespace rackrail::planner {

struct CompressionLimits {
  std::size_t labels = 32;      ///< partial choices kept per bucket
  std::size_t pair_window = 8;  ///< distance of two buckets that are changed together
};

struct CompressionChoice {
  Assignment fastest;
  Duration step;          ///< by the timeline
  Duration bound;         ///< no choice is faster by the timeline
  bool is_exact = false;  ///< `fastest` is an optimum of the timeline
};

/// Never slower by the timeline than any of `starts`. Throws PlanError when a start does not fit.
CompressionChoice search_compression(const Timeline& timeline,
                                     const std::vector<Assignment>& starts,
                                     const CompressionLimits& limits = {});

/// A bucket takes an option of less harm.
struct LighterOption {
  std::size_t bucket = 0;
  std::uint32_t option = 0;
};
/// Changes in the order in which they are made: after any number of them the timeline's step is at
/// most `limit`, if it was before.
std::vector<LighterOption> lighten(const Timeline& timeline, const Assignment& assignment,
                                   Duration limit);

}  // namespace rackrail::planner
