#include "planner/batch/learning_rate.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "planner/batch/batch.hpp"

namespace rackrail::planner {

namespace {

// What the rules' words begin with.
constexpr const char* kLinear = "linear";
constexpr const char* kSquareRoot = "square root";
constexpr const char* kAdaScale = "AdaScale";

}  // namespace

void set_learning_rate(plan::BatchPlan& batch, const plan::Workload& workload,
                       LearningRateRule rule) {
  const std::int64_t global = batch.global_batch();
  const double ratio = static_cast<double>(global) / static_cast<double>(workload.base_batch);
  const bool warms_up = rule != LearningRateRule::kAdaScale && ratio > 1;
  batch.warmup_steps = warms_up ? kWarmupSteps : 0;
  const std::string base =
      fmt::format("{:.4g} at batch {}{}", workload.base_learning_rate, workload.base_batch,
                  workload.has_learning_rate ? "" : " (a default: the workload names none)");
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
        "{}: {:.4g} for batch {}, scaled from {}; at a noise scale of {:.4g} a step counts as "
        "{:.4g} steps of the learning-rate schedule",
        kAdaScale, batch.learning_rate, global, base, *workload.noise_scale, gain);
    return;
  }
  const bool is_linear = rule == LearningRateRule::kLinear;
  batch.learning_rate = workload.base_learning_rate * (is_linear ? ratio : std::sqrt(ratio));
  const char* const name = is_linear ? kLinear : kSquareRoot;
  batch.learning_rate_rule = global == workload.base_batch
                                 ? fmt::format("{}: {}, the workload's own", name, base)
                                 : fmt::format("{}: {:.4g} for batch {}, scaled from {}{}", name,
                                               batch.learning_rate, global, base, warmup);
}

LearningRateRule rule_in(const plan::BatchPlan& batch) {
  return batch.learning_rate_rule.starts_with(kSquareRoot) ? LearningRateRule::kSquareRoot
         : batch.learning_rate_rule.starts_with(kAdaScale) ? LearningRateRule::kAdaScale
                                                           : LearningRateRule::kLinear;
}

}  // namespace rackrail::planner
