#include "explore/time_to_target.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "planner/batch/batch.hpp"

namespace rackrail::explore {

std::optional<TimeToTarget> time_to_target(const plan::Workload& workload,
                                           const plan::BatchPlan& batch, Duration step_time,
                                           std::optional<double> samples) {
  TimeToTarget target;
  if (samples.has_value()) {
    target.samples = *samples;
    target.source = "as asked for";
  } else if (!workload.noise_curve.empty() && workload.noise_curve.back().progress > 0) {
    target.samples =
        workload.noise_curve.back().progress * static_cast<double>(workload.base_batch);
    target.source = "end of the workload's noise scale";
  } else {
    return std::nullopt;
  }
  if (!(target.samples > 0) || !std::isfinite(target.samples)) {
    throw ConfigError(
        ErrorContext{"", "target", fmt::format("{} samples", target.samples), "a positive number"});
  }
  const std::int64_t global = batch.global_batch();
  target.steps = std::ceil(target.samples / (static_cast<double>(global) *
                                             planner::statistical_efficiency(workload, global)));
  target.seconds = target.steps * step_time.seconds();
  return target;
}

}  // namespace rackrail::explore
