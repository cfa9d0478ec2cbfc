// Durations in the terms of std::chrono.
#pragma once

#include <chrono>

#include "base/units.hpp"

namespace rackrail::runtime {

/// Rounded down to whole nanoseconds.
inline std::chrono::nanoseconds to_chrono(Duration time) {
  return std::chrono::nanoseconds(time.picoseconds() / 1000);
}

}  // namespace rackrail::runtime
