// How far the workers of a job are, as their heartbeats say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace rackrail::runtime {

/// What one worker says. Steps count from 0 over the whole training, also after a restart.
struct WorkerProgress {
  std::uint32_t step = 0;  ///< steps done
  double loss = 0;         ///< of the latest step
  Duration step_time;      ///< of the latest step
};

/// What one rank got from another in one step.
struct PairTraffic {
  Rank source;
  Bytes bytes;
  Duration busy;  ///< while some of it was under way
};

/// Of a step that updated the parameters: what plan::NoiseScaleEstimator wants.
struct GradientNorms {
  double weighted_squared = 0;  ///< this rank's part w_i·|g_i|² of the sum over ranks
  double mean_squared = 0;      ///< |ḡ|², the same on all ranks
};

/// What one rank measured in one step.
struct StepMeasurement {
  Rank rank;
  std::uint32_t step = 0;    ///< steps done, this one included
  std::int64_t samples = 0;  ///< of this rank
  Duration step_time;
  Duration compute_time;  ///< forward, backward, optimiser
  std::vector<PairTraffic> received;
  std::optional<GradientNorms> norms{};
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
