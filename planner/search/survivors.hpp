// What a plan that takes the place of another keeps of it: for the ranks that are left after a
// loss, or for links that have changed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/options.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The samples of all ranks, `before` by rank, among those that are left in proportion to what they
/// had: whole numbers with the same sum, each the proportional share rounded up or down.
std::vector<std::int64_t> divide_batch(const std::vector<std::int64_t>& before,
                                       const std::vector<Rank>& left);

/// Another number of samples in the same proportions.
std::vector<std::int64_t> divide_batch(const std::vector<std::int64_t>& before,
                                       const std::vector<Rank>& left, std::int64_t samples);

/// The plan's error budget where it uses codecs, else 0: who has exact sums keeps them.
double budget_in_use(const plan::Plan& plan);

/// Whether the plan keeps the first and the last layer from codecs beyond FP16
/// (planner/tuning/buckets.hpp), as far as can be seen: one without such codecs does.
bool protects_outer_layers(const plan::Plan& plan, const plan::Workload& workload);

/// The only family that the plan may have (plan::Plan::only_schedule), where it can be used on this
/// cluster; none: any. Throws ConfigError for one that does not exist.
std::optional<std::string> schedule_to_keep(const plan::Plan& plan,
                                            const topology::Topology& topology);

/// Those that a plan in the place of this one, for this cluster, is made with: its error budget,
/// warm-up, protection, seed, size of buckets where that was asked for, and schedule_to_keep();
/// without baselines.
PlannerOptions options_in_place_of(const plan::Plan& plan, const plan::Workload& workload,
                                   const topology::Topology& topology);

}  // namespace rackrail::planner
