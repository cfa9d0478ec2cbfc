// What planning again has in common with keeping a plan as it is.
#pragma once

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Throws PlanError where it is not one for this cluster and this workload.
void require_plan_for(const plan::Plan& plan, const topology::Topology& before,
                      const plan::Workload& workload);
/// Says that it is one for the changed cluster.
void move_to(plan::Plan& plan, const topology::Topology& now);

}  // namespace rackrail::planner
