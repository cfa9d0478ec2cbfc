// The options of `rackrail plan` by name, so that a scenario can set and vary them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/planner.hpp"

namespace rackrail::explore {

struct PlanChoice {
  planner::PlannerOptions options;
  bool naive = false;  ///< planner::make_naive_plan instead of the search
};

/// "error_budget", "schedule", …: the long options of the command with underscores.
std::vector<std::string> plan_option_names();

/// Throws ConfigError, with the option as the place, for an unknown name (naming the nearest) or a
/// value that the option cannot have. Baselines are not compared: a sweep does not ask for them.
PlanChoice read_plan_choice(const std::map<std::string, std::string>& options);

}  // namespace rackrail::explore
