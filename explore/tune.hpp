// Random search over what can be chosen for a cluster and a model, with the planner in the loop:
// each trial fixes some of the planner's options, and the planner chooses the rest.
#pragma once

#include "explore/scenario.hpp"
#include "explore/sweep.hpp"
#include "plan/plan.hpp"

namespace rackrail::explore {

/// What is searched when nobody says: bucket sizes from 1 MiB to the whole gradient (by ratio),
/// local batches from a quarter to four times the profiled one by powers of two, as far as memory
/// allows, and error budgets up to `error_budget` that allow FP32 only, FP16 too, 8-bit blocks too,
/// and whatever the last one does. Fifty trials of three executions. The objective is goodput,
/// since the step time alone would favour the smallest batch. Throws ConfigError, for example where
/// no batch fits into memory.
Scenario tuning_scenario(Source cluster, Source workload, double error_budget);

struct TuneResult {
  SweepResult trials;
  Row planner_alone;  ///< the cell in which nothing varies: what the planner chooses by itself
  Row best;           ///< of the trials and that one; without figures where it was stopped before
  plan::Plan plan;    ///< of the best
  bool planner_alone_is_best() const { return best.digest == planner_alone.digest; }
};

/// Throws ConfigError for a scenario that varies more than options of the planner (its plan would
/// be for a cluster or model that is in no file), and what planning throws when every trial failed.
TuneResult tune(const Scenario& scenario, const SweepOptions& options);

}  // namespace rackrail::explore
