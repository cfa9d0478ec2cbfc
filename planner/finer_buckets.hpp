// Buckets of a finished plan, divided as finely as collectives that run alone.
//
// The search looks at few forms of each family, as there are many candidates, and at those that the
// compression timeline knows (planner/schedules/optimal_forest.cpp). What a program reduces one
// buffer at a time gains from finer rounds and slices, and from moves in the order of their urgency
// (collective_forms.hpp).
#pragma once

#include <functional>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Gives each bucket that moves all its bytes with one codec its family's fastest division, where
/// that makes the step faster; the largest buckets first. No message becomes smaller than 32 KiB by
/// it: below, one costs a processor more than a network gains. `plan` must have schedules, and a
/// predicted step time, which is updated (not its gap). `stop` may be empty. On more than 32 ranks
/// it does nothing.
void divide_finely(plan::Plan& plan, const plan::Workload& workload,
                   const topology::Topology& topology, plan::CostModel& cost_model,
                   const std::function<bool()>& stop);

}  // namespace rackrail::planner
