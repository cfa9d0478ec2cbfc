// From what a search found to the plan that is handed over: its schedules, prediction, bound,
// baselines and notes, verified.
#pragma once

#include <string_view>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/options.hpp"
#include "planner/search/joint_search.hpp"
#include "planner/search/search.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// `found` by `search` with these options. Throws PlanError when the verifier refuses it.
plan::Plan finished_plan(const JointResult& found, Search& search,
                         const topology::Topology& topology, const plan::Workload& workload,
                         plan::CostModel& cost_model, const PlannerOptions& options);

/// Whether a baseline of a plan (plan::Prediction::baselines) is a naive one: then every rank has
/// as many samples (same_everywhere()), and where the plan's batch is another one, the plan's bound
/// does not hold for it.
bool is_without_planner(std::string_view baseline);

/// FP32 over a ring in buckets of one size, whatever the options say about schedules and codecs.
plan::Plan naive_plan(const topology::Topology& topology, const plan::Workload& workload,
                      plan::CostModel& cost_model, PlannerOptions options,
                      const plan::BatchPlan& batch);

/// Of a finished plan, where the search has compared times that are not exact.
void predict_exactly(plan::Plan& plan, const plan::Workload& workload, plan::CostModel& cost_model,
                     const PlannerOptions& options);

}  // namespace rackrail::planner
