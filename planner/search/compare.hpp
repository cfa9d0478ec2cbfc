// Every schedule family on its own: the step time of a plan that uses nothing but its schedules for
// steps (ScheduleFamily::all_reduces), for the same batch: bucket sizes × a limit on codecs, each
// bucket the cheapest by the cost model. Beside them the baselines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/options.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The best step of a family with codecs up to a limit.
struct LimitedStep {
  Duration step_time;
  Bytes bucket_size;  ///< no bucket is larger unless one tensor is
};

struct FamilySteps {
  std::string family;
  std::optional<std::string> refusal;  ///< why it cannot be used here; then there are no steps
  std::optional<LimitedStep> fp32;
  std::optional<LimitedStep> fp16;          ///< at most FP16
  std::optional<std::string> fp16_refusal;  ///< why there is no step with FP16, if there is none
  std::optional<LimitedStep> any;           ///< whatever the error budget allows
  /// Whether PlannerOptions::stop came first: a step is then the best of what was tried under its
  /// limit, or absent where nothing was.
  bool was_stopped = false;
};

/// The baselines, as in planner/search/plan_report.hpp.
struct UsualStep {
  std::string name;
  std::string what;  ///< of what it consists
  Duration step_time;
};

struct FamilyComparison {
  std::vector<FamilySteps> families;  ///< all that are registered, in their order
  /// With as many samples on every rank. Absent are those that options or families leave out, or
  /// that the search was stopped before.
  std::vector<UsualStep> usual;
  std::optional<plan::Plan> faster;  ///< with its prediction, verified
};

/// A step with a wider limit is never the slower one. For the steps `options.schedule` and
/// `options.codec` are ignored; error budget, protection and bucket size are not. The fastest plan
/// that keeps to all of them is handed over where its step is shorter than `faster_than`: a search
/// that was stopped may have missed it. Throws ConfigError for fewer than two ranks or a cluster
/// that is not connected.
FamilyComparison compare_families(const topology::Topology& topology,
                                  const plan::Workload& workload, plan::CostModel& cost_model,
                                  PlannerOptions options, const plan::BatchPlan& batch,
                                  Duration faster_than = Duration());

}  // namespace rackrail::planner
