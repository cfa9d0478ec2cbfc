// Plans for what is left of a job's cluster when workers are lost while it trains (`train
// --on-loss continue`).
//
// Each is made for the cluster without the vertices of the lost ranks. A step keeps its number of
// samples, divided anew among the ranks, and its learning rate: so training goes on as if nothing
// had happened but that steps take longer, and the loss curve is the one of the whole job up to the
// order in which floats are added.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

class SurvivalPlans {
 public:
  /// `plan` is for `cluster` and `workload`. A search takes `at_most` of wall-clock time.
  SurvivalPlans(plan::Plan plan, topology::Topology cluster, plan::Workload workload,
                Duration at_most);

  /// The cluster without the others. `left`: ranks of the first plan, ascending.
  topology::Topology cluster_of(const std::vector<Rank>& left) const;
  /// Throws ConfigError when the network without the others does not join them, PlanError when
  /// there are fewer samples than ranks.
  plan::Plan plan_for(const std::vector<Rank>& left) const;

 private:
  const plan::Plan plan_;
  const topology::Topology cluster_;
  const plan::Workload workload_;
  const Duration at_most_;
};

}  // namespace rackrail::cli
