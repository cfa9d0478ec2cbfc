// The planner: a topology and a workload in, a plan out.
//
// Bucket size × schedule family × codecs per tier, each bucket the cheapest under the error budget
// by the cost model, the whole step judged by the same cost model; then the batch size. See
// planner/README.md for the search, docs/limits.md for what it leaves out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/options.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The plan is verified and carries prediction, bound, gap, baselines and notes. Throws ConfigError
/// when the options exclude everything.
plan::Plan make_plan(const topology::Topology& topology, const plan::Workload& workload,
                     plan::CostModel& cost_model, const PlannerOptions& options);

/// The naive baseline: ring all-reduce in rank order as listed, FP32, buckets of 25 MiB, the
/// profiled batch.
plan::Plan make_naive_plan(const topology::Topology& topology, const plan::Workload& workload,
                           plan::CostModel& cost_model, const PlannerOptions& options);

}  // namespace rackrail::planner
