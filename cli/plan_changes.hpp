// What a plan has other than the one that was in use before it: for the notes and the report of a
// job that takes up another plan while it trains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/replan/replan.hpp"

namespace rackrail::cli {

/// Gradients that go another way than before.
struct GradientChange {
  Bytes gradients;         ///< of a step, as FP32
  std::string before;      ///< "ring fp16", as planner::bucket_name says
  std::string after;       ///< also "hierarchical int8 in other chunks"
  std::size_t routes = 0;  ///< pairs of ranks whose route is another, where the schedule stayed
};

struct PlanChanges {
  /// Planned again by planner::replan(): what no changed link touches has stayed.
  bool is_incremental = false;
  Duration planning_time;           ///< wall-clock
  std::size_t touched_buckets = 0;  ///< where it is incremental
  std::size_t buckets_before = 0;
  std::size_t buckets = 0;
  std::vector<GradientChange> gradients;  ///< each pair of schedules and number of routes once
  std::vector<std::int64_t> samples_before;
  std::vector<std::int64_t> samples;  ///< of each rank in a pass

  /// One line: "planned again in 12 ms, 3 of 12 buckets touched: 45 MB by hierarchical int8 instead
  /// of ring int8".
  std::string text() const;
  nlohmann::json json() const;
};

/// `before` is the plan that was planned again.
PlanChanges changes_of(const planner::Replan& replan, const plan::Plan& before);
/// Of plans for the same model that need have nothing else in common, not even the ranks: schedules
/// and codecs, tensor by tensor.
PlanChanges changes_between(const plan::Plan& before, const plan::Plan& after,
                            const plan::Workload& workload);

}  // namespace rackrail::cli
