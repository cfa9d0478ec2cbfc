// Simulated time.
#pragma once

#include <cstdint>

namespace rackrail::sim {

/// Picoseconds since the start of the simulation.
using Time = std::int64_t;

inline constexpr Time kPicosecondsPerSecond = 1'000'000'000'000;
/// Times above it (106 days) are refused: they are near the end of the type.
inline constexpr double kLongestTime = 9.0e18;

}  // namespace rackrail::sim
