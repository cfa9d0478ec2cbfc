// How long a training takes that has a known length.
//
// The length is in samples at the base batch: what a training with that batch would see. A sample
// of batch B is worth E(B) of them (planner/batch/batch.hpp), so S samples take S/(B·E(B)) steps of
// batch B, and steps times the step time. Without a noise scale every sample counts the same (E =
// 1). Codecs within the error budget are taken to cost no steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/plan.hpp"
#include "plan/workload.hpp"

namespace rackrail::explore {

struct TimeToTarget {
  double samples = 0;  ///< at the base batch
  std::string source;  ///< who said so
  double steps = 0;    ///< with the plan's batch; whole
  double seconds = 0;  ///< steps · step time; a Duration would end at 106 days
};

/// The target is `samples`, else the end of the workload's noise curve; none where neither is
/// known. Throws ConfigError for a target that is not positive and finite.
std::optional<TimeToTarget> time_to_target(const plan::Workload& workload,
                                           const plan::BatchPlan& batch, Duration step_time,
                                           std::optional<double> samples = std::nullopt);

}  // namespace rackrail::explore
