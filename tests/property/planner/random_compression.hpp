// Compression problems at random, and their optimum by trying everything.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "planner/compression/compression_timeline.hpp"

namespace rackrail::planner {

struct RandomCompression {
  TimelineProblem problem;
  std::vector<Assignment> uniform;  ///< option o for every bucket
};

/// `buckets` with the same number of options each: the first one moves the most bytes, later ones
/// fewer with more work for the codec. Network and backward take about as long as each other,
/// within a factor of ten; bubbles, delays of backward and lone slow resources occur.
RandomCompression random_compression(std::mt19937_64& random, std::size_t buckets,
                                     std::size_t options);

/// Calls `try_one` with every assignment.
void for_each_assignment(std::size_t buckets, std::size_t options,
                         const std::function<void(const Assignment&)>& try_one);

/// The step by following the recurrence in compression_timeline.hpp to the letter, over all
/// resources, in seconds.
double step_by_definition(const TimelineProblem& problem, const Assignment& assignment);

}  // namespace rackrail::planner
