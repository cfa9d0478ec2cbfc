#include "planner/batch/learning_rate.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "planner/batch.hpp"

namespace rackrail::planner {

void set_learning_rate(plan::BatchPlan& batch, const plan::Workload& workload,
                       LearningRateRule rule) {
  const std::int64_t global = batch.global_batch();
  const double ratio = static_cast<double>(global) / static_cast<double>(workload.base_batch);
  const bool warms_up = rule != LearningRateRule::kAdaScale && ratio > 1;
  batch.warmup_steps = warms_up ? kWarmupSteps : 0;
  const std::string base =
      fmt::format("{:.4g} at batch {}", workload.base_learning_rate, workload.base_batch);
  const std::string warmup =
      warms_up ? fmt::format(", after a linear warm-up over {} steps", kWarmupSteps) : "";
  if (rule == LearningRateRule::kAdaScale) {
    if (!workload.noise_scale) {
      throw ConfigError(ErrorContext{"", fmt::format("workload '{}'", workload.name),
                                     "no noise scale", "one, which AdaScale's gain needs"});
    }
    // By its definition the gain is what efficiency makes of a larger batch.
    const double gain = ratio * statistical_efficiency(workload, global);
    batch.learning_rate = workload.base_learning_rate * gain;
    batch.learning_rate_rule = fmt::format(
        "AdaScale: {:.4g} = {} times the gain {:.4g} of batch {} at a noise scale of {:.4g}; a "
        "step counts for {:.4g} of the schedule's",
        batch.learning_rate, base, gain, global, *workload.noise_scale, gain);
    return;
  }
  const bool is_linear = rule == LearningRateRule::kLinear;
  batch.learning_rate = workload.base_learning_rate * (is_linear ? ratio : std::sqrt(ratio));
  batch.learning_rate_rule =
      fmt::format("{}: {:.4g} = {} times {}{}/{}{}{}", is_linear ? "linear" : "square root",
                  batch.learning_rate, base, is_linear ? "" : "√(", global, workload.base_batch,
                  is_linear ? "" : ")", warmup);
}

}  // namespace rackrail::planner
