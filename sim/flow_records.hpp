// What went over the network in a step, message by message; for sim/*.cpp only.
#pragma once

#include <vector>

#include "sim/engine.hpp"

namespace rackrail::sim {

/// Of the collectives that the engine kept, by their order, with times since `from`. It must have
/// recorded.
std::vector<FlowRecord> flow_records(const Engine& engine, Time from);

}  // namespace rackrail::sim
