// How far the workers of a job are, as their heartbeats say.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.hpp"

namespace rackrail::runtime {

/// What one worker says. Steps count from 0 over the whole training, also after a restart.
struct WorkerProgress {
  std::uint32_t step = 0;  ///< steps done
  double loss = 0;         ///< of the latest step
  Duration step_time;      ///< of the latest step
};

/// The job as a whole.
struct JobProgress {
  std::size_t joined = 0;  ///< workers that have come
  std::size_t world_size = 0;
  std::uint32_t step = 0;  ///< steps done by every worker
  double loss = 0;         ///< latest training loss, mean over the workers that have done a step
  Duration step_time;      ///< latest of the slowest worker
};

}  // namespace rackrail::runtime
