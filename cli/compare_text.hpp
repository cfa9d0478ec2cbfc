// What `rackrail plan --compare` shows: the step of every schedule family and of the baselines,
// beside the plan's.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "planner/search/compare.hpp"

namespace rackrail::cli {

/// By family: "schedule", then "refused" or "fp32", "fp16" and "any", each null or an object with
/// "step_time_s", "bucket_bytes" and "against_plan" (0.1: 10 % longer than the plan's step), and
/// "fp16_refused" where there is none.
nlohmann::json comparison_json(const std::vector<planner::FamilySteps>& families, Duration plan);

/// Side by side, fastest first: "name", "kind" (plan, family, usual), "what", "step_time_s" and
/// "against_plan"; families by their best step.
nlohmann::json side_by_side_json(const planner::FamilyComparison& comparison,
                                 const plan::Plan& plan);

/// The fastest first, refusals last.
std::string comparison_table(const planner::FamilyComparison& comparison, const plan::Plan& plan);

}  // namespace rackrail::cli
