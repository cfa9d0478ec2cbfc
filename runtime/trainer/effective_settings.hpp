// Batches and learning rates that a run really uses, out of plan and configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/plan.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/trainer/learning_rate.hpp"

namespace rackrail::trainer {

struct EffectiveSettings {
  std::vector<std::int64_t> local_batch;  ///< per rank and pass
  std::int64_t accumulation = 1;
  std::int64_t global_batch = 0;  ///< samples per step
  std::int64_t total_steps = 0;
  LearningRate learning_rate;
};

/// Where plan and configuration both speak, the plan counts: local batches, passes per step,
/// learning rate and warm-up of plan::BatchPlan are taken when they are there (non-empty,
/// positive). With `total_samples` the training is as long as steps of that many samples, whatever
/// the configuration says. Throws PlanError for batches of another number of ranks.
EffectiveSettings effective_settings(const TrainingConfig& config, const plan::Plan& plan,
                                     std::int64_t training_samples,
                                     std::optional<std::int64_t> total_samples = std::nullopt);

}  // namespace rackrail::trainer
