// What figures of a plan, and options that become such figures, may be at most.
#pragma once

#include <cstdint>

namespace rackrail::plan {

inline constexpr double kMostLearningRate = 1e6;  // 0.1 for 256 samples, scaled to 10⁹ of them
/// Of gradients' relative error: above it no codec is kept out any more.
inline constexpr double kMostErrorBudget = 1000;
inline constexpr std::int64_t kMostSamples = 1'000'000'000;  // of a step

}  // namespace rackrail::plan
