// What went over the network in a step, message by message; for sim/*.cpp only.
#pragma once

#include <vector>

#include "sim/engine.hpp"

namespace rackrail::sim {

/// Of the collectives from `first_run` on, with times since `from`. The engine must have recorded.
std::vector<FlowRecord> flow_records(const Engine& engine, Time from, std::uint32_t first_run,
                                     std::uint32_t end_run);

}  // namespace rackrail::sim
