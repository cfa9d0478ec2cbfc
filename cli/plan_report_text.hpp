// What `rackrail plan --explain` shows (planner/search/plan_report.hpp), and the time to target.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "explore/time_to_target.hpp"
#include "planner/search/plan_report.hpp"

namespace rackrail::cli {

/// "baselines", "single_knobs", "choices" (what bought most first) and, where there is one,
/// "unprotected": each alternative with "name", "what", "step_time_s", "global_batch",
/// "against_plan" (0.1: a useful sample takes 10 % longer than with the plan) and, with a target,
/// "time_to_target_s" (of fractional steps).
nlohmann::json report_json(const planner::PlanReport& report,
                           const std::optional<explore::TimeToTarget>& target);
/// The three choices that mattered most, the table of alternatives, what protection costs, and how
/// far the bound allows a better plan than the best single knob.
std::string report_text(const planner::PlanReport& report, const plan::Plan& plan);

/// "samples", "steps", "time_s", "source".
nlohmann::json target_json(const explore::TimeToTarget& target);
/// "3.2 h: 120,000 steps for 1e+07 samples (as asked for)".
std::string target_text(const explore::TimeToTarget& target);

}  // namespace rackrail::cli
