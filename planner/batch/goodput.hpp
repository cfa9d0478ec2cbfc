// Goodput: samples per second times what each is worth (Qiao et al., "Pollux", OSDI 2021), with
// step times from whoever asks, usually a simulation.
//
// goodput(B) = B/T(B) · (N + B₀)/(N + B). Its inverse is, up to a constant, T(B) + N·T(B)/B; where
// T is the largest of affine functions of B with positive constants (a pipeline's stages) both
// terms are convex, so goodput has one peak and a search may follow the slope. Another pass adds a
// fixed time at once, which is no longer convex: hence the search goes on for another step past the
// peak that it has found, and also looks at the batches that just fill memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/batch/batch_space.hpp"
#include "planner/request/policies.hpp"

namespace rackrail::planner {

struct BatchPoint {
  plan::BatchPlan batch;
  Duration step_time;
  double throughput = 0;  ///< samples per second
  double efficiency = 1;  ///< E(B); 1 without a noise scale
  double goodput() const { return throughput * efficiency; }
};

using StepTime = std::function<Duration(const plan::BatchPlan&)>;

BatchPoint rate(const plan::Workload& workload, const StepTime& step_time, plan::BatchPlan batch);

/// The best of what was tried, and all of it by ascending global batch. Doubles and halves from the
/// profiled batch, then narrows to steps of a ninth or so; 15–30 step times. The workload must have
/// a noise scale; throws ConfigError otherwise.
struct GoodputSearch {
  BatchPoint best;
  std::vector<BatchPoint> tried;
};
GoodputSearch search_goodput(const plan::Workload& workload, const BatchSpace& space,
                             const StepTime& step_time);

struct BatchDecision {
  plan::BatchPlan batch;
  std::vector<std::string> notes;  ///< one sentence each, for the plan
};

/// kGoodput without a noise scale in the workload decides as kFixed does. A batch that was asked
/// for stays as it is. `step_time` is asked only where there is a noise scale.
BatchDecision decide_batch(const plan::Workload& workload, const BatchSpace& space,
                           BatchPolicy policy, const StepTime& step_time);

}  // namespace rackrail::planner
