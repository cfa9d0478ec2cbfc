// Learning rate by step: linear warm-up to a peak, then constant or a half cosine down to zero.
//
// The peak follows the linear scaling rule η · B / B₀ and the warm-up is gradual, both from Goyal
// et al., "Accurate, large minibatch SGD" (arXiv 1706.02677). The cosine is computed here with
// exactly rounded operations alone, because ranks on different machines must step by the same bits
// and mathematical libraries differ in the last one.
#pragma once

#include <cstdint>

namespace rackrail::trainer {

enum class Decay : std::uint8_t { kConstant, kCosine };

struct LearningRate {
  double peak = 0.1;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;  ///< of the whole run: where the cosine reaches zero
  Decay decay = Decay::kConstant;

  /// For steps counted from 0: peak · (step + 1) / warmup_steps while warming up.
  double at(std::int64_t step) const;
};

/// η · B / B₀.
double scaled_learning_rate(double base_rate, std::int64_t base_batch, std::int64_t global_batch);

}  // namespace rackrail::trainer
