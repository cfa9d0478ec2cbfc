// What servers need to know to update parameters themselves, as all ranks know it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/trainer/learning_rate.hpp"
#include "runtime/trainer/optimizer.hpp"

namespace rackrail::trainer {

struct UpdateRule {
  SgdOptions optimizer;  ///< clip_norm is not theirs: workers clip what they push
  LearningRate learning_rate;
  std::vector<double> shares;  ///< of each rank's samples in those of a step
  /// By bucket: regions of the bucket, without gaps from its first element on.
  std::vector<std::vector<DecayRegion>> regions;
  /// Whether all ranks meet after so many steps of the whole training: nobody begins another before
  /// all have done as many, and all hold the same parameters.
  std::function<bool(std::int64_t)> meets;
};

}  // namespace rackrail::trainer
