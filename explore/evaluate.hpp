// What a cell comes to: planned once, simulated as often as asked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "explore/cells.hpp"
#include "plan/plan.hpp"

namespace rackrail::explore {

struct Figures {
  double step_time_s = 0;  ///< median of the executions; each the mean of its steps
  double bound_s = 0;      ///< no plan under the same budget can be faster
  double gap = 0;          ///< step_time_s / bound_s − 1
  double sync_share = 0;   ///< of the last step simulated: median of the executions
  double throughput = 0;   ///< samples per second
  double goodput = 0;  ///< useful samples per second: throughput · planner::statistical_efficiency
  std::int64_t global_batch = 0;
  std::int64_t executions = 0;
  bool executions_equal = true;  ///< all to the picosecond: nothing in them was random
};

/// The figure with the objective's name.
double value_of(const Figures& figures, const Objective& objective);

/// Plans the cell with the scenario's seed and simulates the plan `repetitions` times, execution i
/// with a seed of its own in the plan (random_bits of seed and i), which is what everything random
/// in an execution derives from, its faults too. `made`, if given, receives the plan, which is then
/// compared with baselines too. Once `stop` says so, the search ends with its best plan so far.
/// Throws what reading, planning and simulating throw. Safe from several threads.
Figures evaluate(const Cell& cell, plan::Plan* made = nullptr,
                 const std::function<bool()>& stop = {});

}  // namespace rackrail::explore
