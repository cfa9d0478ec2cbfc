#include "planner/search/survivors.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/tuning/buckets.hpp"

namespace rackrail::planner {

std::vector<std::int64_t> divide_batch(const std::vector<std::int64_t>& before,
                                       const std::vector<Rank>& left) {
  return divide_batch(before, left, std::accumulate(before.begin(), before.end(), std::int64_t{0}));
}

std::vector<std::int64_t> divide_batch(const std::vector<std::int64_t>& before,
                                       const std::vector<Rank>& left, std::int64_t samples) {
  std::int64_t of_left = 0;
  for (const Rank rank : left) {
    of_left += before.at(rank.index());
  }
  std::vector<std::int64_t> result;
  std::vector<std::int64_t> remainders;
  for (const Rank rank : left) {
    const std::int64_t share = before[rank.index()] * samples;
    result.push_back(share / of_left);
    remainders.push_back(share % of_left);
  }
  std::vector<std::size_t> order(left.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::size_t i) { return remainders[i]; });
  const std::int64_t missing =
      samples - std::accumulate(result.begin(), result.end(), std::int64_t{0});
  for (std::size_t i = 0; i < static_cast<std::size_t>(missing); ++i) {
    ++result[order[i]];
  }
  return result;
}

double budget_in_use(const plan::Plan& plan) {
  const bool is_lossy = std::ranges::any_of(
      plan.buckets, [](const plan::Bucket& bucket) { return bucket.codec.is_lossy(); });
  return is_lossy ? plan.error_budget : 0;
}

bool protects_outer_layers(const plan::Plan& plan, const plan::Workload& workload) {
  const std::vector<bool> with_outer = protected_tensors(workload, true);
  return std::ranges::none_of(plan.buckets, [&](const plan::Bucket& bucket) {
    return !bucket.codec.survives_many_hops() &&
           std::ranges::any_of(bucket.tensors, [&](std::uint32_t tensor) {
             return with_outer.at(tensor) && !workload.tensors.at(tensor).is_protected();
           });
  });
}

std::optional<std::string> schedule_to_keep(const plan::Plan& plan,
                                            const topology::Topology& topology) {
  if (plan.only_schedule.empty() ||
      graph_refusal(schedule_family(plan.only_schedule), topology, {})) {
    return std::nullopt;
  }
  return plan.only_schedule;
}

PlannerOptions options_in_place_of(const plan::Plan& plan, const plan::Workload& workload,
                                   const topology::Topology& topology) {
  PlannerOptions options;
  options.schedule = schedule_to_keep(plan, topology);
  if (plan.only_bucket_size > Bytes()) {
    options.bucket_size = plan.only_bucket_size;
  }
  options.error_budget = plan.error_budget;
  options.protect_outer_layers = protects_outer_layers(plan, workload);
  options.compression_warmup = plan.compression_warmup_steps;  // steps are counted on
  options.seed = plan.seed;
  options.compare_baselines = false;
  options.effort = SearchEffort::kQuick;  // a job waits for it
  return options;
}

}  // namespace rackrail::planner
