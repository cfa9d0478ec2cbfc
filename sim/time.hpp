// Simulated time.
#pragma once

#include <cstdint>

namespace rackrail::sim {

/// Picoseconds since the start of the simulation.
using Time = std::int64_t;

}  // namespace rackrail::sim
