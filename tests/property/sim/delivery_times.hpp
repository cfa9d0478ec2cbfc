// When each flow of a random set ends in rackrail's network model.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/property/sim/random_flows.hpp"

namespace rackrail::sim::test {

/// Picoseconds, by flow. The flows start at their own times and leave when they are through.
std::vector<std::int64_t> delivery_times(const RandomFlows& set);

}  // namespace rackrail::sim::test
