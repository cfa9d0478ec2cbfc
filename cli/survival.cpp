#include "cli/survival.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "planner/planner.hpp"
#include "planner/survivors.hpp"
#include "sim/simulator.hpp"
#include "topology/remove.hpp"

namespace rackrail::cli {

SurvivalPlans::SurvivalPlans(plan::Plan plan, topology::Topology cluster, plan::Workload workload,
                             Duration at_most)
    : plan_(std::move(plan)),
      cluster_(std::move(cluster)),
      workload_(std::move(workload)),
      at_most_(at_most) {}

topology::Topology SurvivalPlans::cluster_of(const std::vector<Rank>& left) const {
  std::vector<std::string> lost;
  for (std::size_t r = 0; r < cluster_.rank_count(); ++r) {
    if (!std::ranges::binary_search(left, Rank(r))) {
      lost.push_back(cluster_.node(cluster_.node_of(Rank(r))).name);
    }
  }
  return topology::without(cluster_, lost, {});
}

plan::Plan SurvivalPlans::plan_for(const std::vector<Rank>& left) const {
  const topology::Topology cluster = cluster_of(left);
  cluster.require_connected();
  const std::vector<std::int64_t> local_batch =
      planner::divide_batch(plan_.batch.local_batch, left);
  if (std::ranges::min(local_batch) < 1) {
    throw PlanError("a step of " + std::to_string(plan_.batch.global_batch()) +
                    " samples is too small for " + std::to_string(left.size()) + " ranks");
  }

  planner::PlannerOptions options;
  options.error_budget = planner::budget_in_use(plan_);
  options.compression_warmup = plan_.compression_warmup_steps;  // steps are counted on
  options.seed = plan_.seed;
  options.compare_baselines = false;
  options.local_batch = std::ranges::max(local_batch);
  options.stop = [end = std::chrono::steady_clock::now() +
                        std::chrono::nanoseconds(at_most_.picoseconds() / 1000)] {
    return std::chrono::steady_clock::now() >= end;
  };
  const auto costs = sim::make_cost_model(cluster, {});
  plan::Plan plan = planner::make_plan(cluster, workload_, *costs, options);
  plan.batch = plan_.batch;
  plan.batch.local_batch = local_batch;
  return plan;
}

}  // namespace rackrail::cli
