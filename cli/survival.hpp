// Plans for what is left of a job's cluster when workers are lost or something becomes slow while
// it trains (`train --on-loss continue`, `--on-slow replan`).
//
// Each is made for the cluster without the vertices of the lost ranks, with the rates that its
// links have now. Slow ranks get fewer samples, so that all finish together (planner/batch). A step
// keeps its number of samples, divided anew among the ranks, and its learning rate. So training
// continues unchanged, except that steps take longer. The loss curve is the one of the whole job,
// up to the order in which floats are added. Only set_batch() changes the batch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "cli/plan_changes.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/policies.hpp"
#include "runtime/watch/slow_ranks.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

class SurvivalPlans {
 public:
  /// Share of a step by which another plan must be better than the one in use.
  static constexpr double kWorthIt = 0.03;

  /// `plan` is for `cluster` and `workload`. A search takes `at_most` of wall-clock time.
  SurvivalPlans(plan::Plan plan, topology::Topology cluster, plan::Workload workload,
                Duration at_most);

  /// Plans from now on use only this family of schedules.
  void keep_schedule(std::string family) { schedule_ = std::move(family); }
  /// Routes of plans from now on have no rates.
  void leave_out_rates() { route_rates_ = planner::RouteRates::kNever; }
  /// What is not as in the cluster any more: rates of its links, and by what the time of its slow
  /// ranks has grown. Instead of what was said before.
  void set_condition(const std::map<LinkId, Bandwidth>& rates, runtime::BatchFactors factors);

  /// Samples, passes and learning rate of a step from now on, for these ranks of the first plan;
  /// for others the same samples, in the first plan's proportions.
  void set_batch(plan::BatchPlan batch, std::vector<Rank> ranks);

  /// The cluster as it is now, without the others. `left`: ranks of the first plan, ascending.
  topology::Topology cluster_of(const std::vector<Rank>& left) const;
  /// Throws ConfigError when the network without the others does not join them, PlanError when
  /// there are fewer samples than ranks.
  plan::Plan plan_for(const std::vector<Rank>& left) const;
  /// The same with steps of `batch`, which has a size for each of these ranks, all positive.
  plan::Plan plan_for(const std::vector<Rank>& left, plan::BatchPlan batch) const;
  /// Another plan and what it does otherwise.
  struct Other {
    plan::Plan plan;
    PlanChanges changes;
  };
  /// plan_for() these ranks, in the place of the plan in use, which may be for others.
  Other planned_anew(const plan::Plan& in_use, const std::vector<Rank>& left) const;
  /// What a rank of the first plan computes in a step while it is well, by the workload; in
  /// proportion to its samples where the workload does not say.
  runtime::ComputeLine profile(Rank rank) const;
  /// `batch` divided anew among these ranks, so that all finish together, where some are slow.
  plan::BatchPlan fitted(plan::BatchPlan batch, const std::vector<Rank>& left) const;
  /// The step of the plan that is in use on the cluster as it is now, and that of the best other.
  struct Weighed {
    Duration kept;
    Duration better;
    std::optional<plan::Plan> plan{};      ///< the other one, where it is worth a change
    std::optional<PlanChanges> changes{};  ///< and what it does otherwise
    /// "plan kept: …", or what the other one is for.
    std::string text() const;
  };
  /// First what uses links that have changed since the plan was made is planned again
  /// (planner/replan/replan.hpp); everything where that is not worth a change, or where `in_use`
  /// was not made here. Both share the time of one search. Throws as plan_for.
  Weighed weigh(const plan::Plan& in_use, const std::vector<Rank>& ranks) const;
  /// The simulated step of a plan that was made for the same ranks, on the cluster as it is now:
  /// with the samples that the plan gives to each rank, and the time that slow ones take for them.
  /// Not what plan_for() leaves in its prediction, which is of ranks that are all well.
  Duration step_time_of(plan::Plan plan, const std::vector<Rank>& left) const;

 private:
  using Rates = std::map<LinkId, Bandwidth>;
  using Stop = std::function<bool()>;  // as of planner::PlannerOptions

  plan::BatchPlan batch_of(const std::vector<Rank>& left) const;
  topology::Topology cluster_of(const std::vector<Rank>& left, const Rates& rates) const;
  std::optional<topology::Topology> planned_for(const plan::Plan& plan,
                                                const std::vector<Rank>& ranks) const;
  plan::Plan plan_for(const std::vector<Rank>& left, plan::BatchPlan batch, const Stop& stop) const;
  std::optional<Other> planned_again(const plan::Plan& in_use, const std::vector<Rank>& ranks,
                                     const Stop& stop) const;
  Other planned_anew(const plan::Plan& in_use, const std::vector<Rank>& left,
                     const Stop& stop) const;

  const plan::Plan plan_;
  const topology::Topology cluster_;
  const plan::Workload workload_;
  const Duration at_most_;
  std::optional<std::string> schedule_;
  planner::RouteRates route_rates_ = planner::RouteRates::kWhereKept;
  plan::BatchPlan batch_;                 // of a step now
  std::vector<Rank> batch_ranks_;         // that it is divided among
  std::vector<Rates> conditions_ = {{}};  // latest that plans may be for; the last one holds
  runtime::BatchFactors factors_;
};

}  // namespace rackrail::cli
