// Planning again while a job runs, after links were lost or changed their rates: only what moves
// over those links is planned anew, and the rest of the plan stays as it is.
//
// Method. A schedule is touched when a pinned route of it uses a changed link; a bucket is touched
// when its schedule is. First the touched routes are replaced by those that the router takes now.
// The plan was the best that the planner found for the cluster before, and links are rarely better
// than they were; so when the step is not noticeably longer than before, a full search has little
// to find, and this is the answer. Otherwise each touched bucket also gets the schedule that may be
// the fastest on the cluster as it is now, with the codec that it has and with the lightest and the
// strongest that the plan's error budget allows (0 where it was made for exact sums), and the
// fastest of these whole steps is kept. Schedules are chosen by their closed-form bounds, and
// looked for further as long as the step is a percent longer than before and than its lower bound:
// among the families that the plan uses, then among all, which take as long to be made as steps to
// be simulated; where every bucket is touched, also in buckets of other sizes. Buckets of about one
// size get the same. What is not touched stays, and so does the batch.
//
// A plan that was to have one family or one size of buckets (plan::Plan::only_schedule,
// only_bucket_size) has them afterwards; where the family cannot be made anew on the changed
// cluster, it only gets other routes. Schedules that a whole search has beside families' own
// (step_forms.hpp) keep their shape on other routes, or give way to those: looking for new ones
// takes longer than all of this.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/policies.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

struct LinkChange {
  LinkId link;                         ///< one direction, of the cluster before
  std::optional<Bandwidth> bandwidth;  ///< what it has now; none: the link is lost
};

/// The cluster as it is now: without the links that are lost, the others with their rates. Throws
/// ConfigError that names the lost link by which ranks no longer reach the others, or when a
/// bandwidth is 0.
topology::Topology changed_cluster(const topology::Topology& topology,
                                   std::span<const LinkChange> changes);

/// What moves the bucket, in lists of changes: "ring fp16".
std::string bucket_name(const plan::Plan& plan, const plan::Bucket& bucket);

/// A bucket whose schedule or routes are others than before.
struct BucketChange {
  std::size_t bucket = 0;
  std::string before;      ///< "ring fp16"
  std::string after;       ///< also "hierarchical int8 in other chunks"
  std::size_t routes = 0;  ///< pairs of ranks whose route is another, where the schedule stayed
};

struct Replan {
  plan::Plan plan;  ///< verified for the changed cluster
  std::size_t touched_schedules = 0;
  std::size_t touched_buckets = 0;
  std::vector<BucketChange> changes;
  Duration before;     ///< step time that the old plan predicts
  Duration rerouted;   ///< of the old plan with new routes where it needs them
  Duration after;      ///< of the new plan
  Bytes bytes_before;  ///< per step over the changed links, by the old plan
  Bytes bytes_after;   ///< by the new plan, over those that are left
  int simulated_steps = 0;
};

/// `now` is changed_cluster(before, changes), and `cost_model` is of it. Throws PlanError when the
/// plan is not for `before` and `workload`. Where the plan has rates
/// of routes the new one may, too, unless they are kNever. Deterministic without `stop`, which is
/// asked between simulations and in them: from the first true on the search ends with the best plan
/// so far.
Replan replan(const plan::Plan& plan, const topology::Topology& before,
              const topology::Topology& now, std::span<const LinkChange> changes,
              const plan::Workload& workload, plan::CostModel& cost_model,
              RouteRates route_rates = RouteRates::kWhereKept,
              const std::function<bool()>& stop = {});

/// The step time of the plan as it is on the changed cluster; none when it uses a lost link.
std::optional<Duration> step_if_kept(const plan::Plan& plan, const topology::Topology& before,
                                     const topology::Topology& now,
                                     std::span<const LinkChange> changes,
                                     const plan::Workload& workload, plan::CostModel& cost_model);

}  // namespace rackrail::planner
