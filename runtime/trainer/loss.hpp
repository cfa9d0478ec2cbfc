// Softmax and cross-entropy: −log softmax(z)[label].
#pragma once

#include <cstdint>
#include <span>

namespace rackrail::trainer {

struct LossSum {
  double loss = 0;           ///< Σ over the samples
  std::int64_t correct = 0;  ///< samples whose largest output is their label
};

/// `outputs` holds labels.size() rows of as many values as there are classes. `gradient` is either
/// empty or as large as `outputs` and receives weight · ∂Σloss/∂outputs.
LossSum softmax_cross_entropy(std::span<const float> outputs, std::span<const std::int32_t> labels,
                              double weight, std::span<float> gradient);

}  // namespace rackrail::trainer
