// What `rackrail plan` shows: a plan, what was made beside it, and how the run went.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "explore/host_count.hpp"
#include "explore/time_to_target.hpp"
#include "plan/codec_errors.hpp"
#include "plan/plan.hpp"
#include "planner/search/compare.hpp"
#include "planner/search/plan_report.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// A plan and what is shown beside it.
struct MadePlan {
  plan::Plan plan;
  std::optional<planner::PlanReport> report;
  std::vector<explore::HostCountPoint> by_hosts;
  std::optional<planner::FamilyComparison> compared;
  double gradient_error = 0;                                           ///< plan::reduced_error
  std::vector<std::pair<plan::Codec, plan::CodecError>> codec_errors;  ///< of codecs in use
  std::optional<explore::TimeToTarget> target;
};

/// What a run says about itself.
struct PlanRun {
  std::string output;         ///< where the plan was written; empty: nowhere
  double search_seconds = 0;  ///< of the search, and of plans for other numbers of hosts
  bool has_budget = false;    ///< of time
  bool was_stopped = false;
  bool was_interrupted = false;                ///< by Ctrl-C
  std::optional<bool> was_comparison_stopped;  ///< none: nothing was compared within a budget
};

nlohmann::json plan_run_json(const MadePlan& made, const PlanRun& run);
std::string plan_run_text(const MadePlan& made, const PlanRun& run,
                          const topology::Topology& cluster, const plan::Workload& workload);

}  // namespace rackrail::cli
