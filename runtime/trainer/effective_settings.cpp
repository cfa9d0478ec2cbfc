#include "runtime/trainer/effective_settings.hpp"

#include <string>

#include "base/error.hpp"
#include "runtime/trainer/sampler.hpp"

namespace rackrail::trainer {

EffectiveSettings effective_settings(const TrainingConfig& config, const plan::Plan& plan,
                                     std::int64_t training_samples,
                                     std::optional<std::int64_t> total_samples) {
  EffectiveSettings settings;
  settings.local_batch = plan.batch.local_batch;
  if (settings.local_batch.empty()) {
    settings.local_batch.assign(plan.rank_count(), config.local_batch);
  }
  if (settings.local_batch.size() != plan.rank_count()) {
    throw PlanError(ErrorContext{
        plan.name, "batch.local_batch", std::to_string(settings.local_batch.size()) + " entries",
        "one for each of " + std::to_string(plan.rank_count()) + " ranks"});
  }
  settings.accumulation = plan.batch.accumulation;
  settings.global_batch = Shard(settings.local_batch, 0, settings.accumulation).global_batch();
  settings.total_steps = total_samples
                             ? (*total_samples + settings.global_batch - 1) / settings.global_batch
                             : config.total_steps(training_samples, settings.global_batch);
  LearningRate& rate = settings.learning_rate;
  rate.peak = plan.batch.learning_rate > 0
                  ? plan.batch.learning_rate
                  : scaled_learning_rate(config.base_learning_rate, config.base_batch,
                                         settings.global_batch);
  rate.warmup_steps = plan.batch.warmup_steps > 0 ? plan.batch.warmup_steps : config.warmup_steps;
  rate.total_steps = settings.total_steps;
  rate.decay = config.decay;
  return settings;
}

}  // namespace rackrail::trainer
