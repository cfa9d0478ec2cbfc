// The learning rate that goes with a batch.
#pragma once

#include <cstdint>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/policies.hpp"

namespace rackrail::planner {

/// Length of a warm-up, of the learning rate or of compression, where there is one.
inline constexpr std::int64_t kWarmupSteps = 200;

/// Sets learning rate, warm-up and the rule in words with its numbers, for the batch's global size
/// against the workload's base batch. Linear and square root warm up over kWarmupSteps when the
/// batch is above the base. Throws ConfigError for kAdaScale without a noise scale in the workload.
void set_learning_rate(plan::BatchPlan& batch, const plan::Workload& workload,
                       LearningRateRule rule);

/// The rule in whose words set_learning_rate() put a batch's `learning_rate_rule`; linear for other
/// words, or none.
LearningRateRule rule_in(const plan::BatchPlan& batch);

}  // namespace rackrail::planner
