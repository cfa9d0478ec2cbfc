// What `rackrail plan --compare` shows: every schedule family's step beside the plan's.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/compare.hpp"

namespace rackrail::cli {

/// By family: "schedule", then "refused" or "fp32", "fp16" and "any", each null or an object with
/// "step_time_s", "bucket_bytes" and "against_plan" (0.1: 10 % longer than the plan's step), and
/// "fp16_refused" where there is none.
nlohmann::json comparison_json(const std::vector<planner::FamilySteps>& families, Duration plan);

/// The fastest family first, refusals last.
std::string comparison_table(std::vector<planner::FamilySteps> families, Duration plan);

}  // namespace rackrail::cli
