// Records of what an engine was watched for; for sim/*.cpp only.
#pragma once

#include <span>

#include "sim/engine.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim {

/// Of the step that was watched (Engine::watch).
struct RecordedTime {
  Time from = 0;         ///< when it began
  Time to = 0;           ///< when it ended
  Time shown_until = 0;  ///< what begins later is not in the timeline
};

/// What `options`, with which the engine ran, ask to record of these ranks.
Records records(const Engine& engine, const topology::Topology& topology,
                const SimulationOptions& options, std::span<const Rank> ranks,
                const RecordedTime& time);

}  // namespace rackrail::sim
