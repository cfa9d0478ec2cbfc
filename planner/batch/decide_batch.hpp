// The batch of a plan, by the policy that was asked for, with the other policies beside it.
#pragma once

#include <string>
#include <vector>

#include "planner/batch/goodput.hpp"

namespace rackrail::planner {

struct BatchDecision {
  plan::BatchPlan batch;
  std::vector<std::string> notes;  ///< one sentence each, for the plan
};

/// kGoodput without a noise scale in the workload decides as kFixed does. A batch that was asked
/// for stays as it is. `step_time` is asked only where there is a noise scale.
BatchDecision decide_batch(const plan::Workload& workload, const BatchSpace& space,
                           BatchPolicy policy, const StepTime& step_time);

}  // namespace rackrail::planner
