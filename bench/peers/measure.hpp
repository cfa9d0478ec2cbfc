// One run in a process of its own, so that its processor time and peak memory are its own.
#pragma once

#include <functional>

#include "bench/peers/peers.hpp"

namespace rackrail::bench {

struct Measurement {
  Outcome outcome;
  double cpu_seconds = 0;  ///< user and system, from fork to exit: set-up, run and clean-up
  double peak_mb = 0;      ///< largest resident set, in 1e6 bytes; shared libraries included
};

/// Runs `work` in a child. Throws Error when the child does not come back with an outcome.
Measurement measure(const std::function<Outcome()>& work);

}  // namespace rackrail::bench
