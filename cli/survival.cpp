#include "cli/survival.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "planner/batch/equal_finish.hpp"
#include "planner/planner.hpp"
#include "planner/survivors.hpp"
#include "sim/simulator.hpp"
#include "topology/remove.hpp"

namespace rackrail::cli {

namespace {

/// Of a step of so many passes.
runtime::ComputeLine line_of(const planner::DeviceSpeed& device, std::int64_t passes) {
  return {device.fixed.seconds() * static_cast<double>(passes), device.per_sample.seconds()};
}

}  // namespace

SurvivalPlans::SurvivalPlans(plan::Plan plan, topology::Topology cluster, plan::Workload workload,
                             Duration at_most)
    : plan_(std::move(plan)),
      cluster_(std::move(cluster)),
      workload_(std::move(workload)),
      at_most_(at_most),
      batch_(plan_.batch) {
  for (std::size_t r = 0; r < plan_.rank_count(); ++r) {
    batch_ranks_.emplace_back(r);
  }
}

topology::Topology SurvivalPlans::cluster_of(const std::vector<Rank>& left) const {
  std::vector<std::string> lost;
  for (std::size_t r = 0; r < cluster_.rank_count(); ++r) {
    if (!std::ranges::binary_search(left, Rank(r))) {
      lost.push_back(cluster_.node(cluster_.node_of(Rank(r))).name);
    }
  }
  topology::Topology now = cluster_;
  for (const auto& [link, rate] : rates_) {
    now.set_link_rate(link, rate, now.link(link).latency);
  }
  return topology::without(now, lost, {});
}

void SurvivalPlans::set_condition(std::map<LinkId, Bandwidth> rates,
                                  runtime::BatchFactors factors) {
  rates_ = std::move(rates);
  factors_ = std::move(factors);
}

runtime::ComputeLine SurvivalPlans::profile(Rank rank) const {
  try {
    const std::int64_t passes = batch_.accumulation;
    return line_of(planner::device_speeds(cluster_, workload_, passes).at(rank.index()), passes);
  } catch (const Error&) {
    return {};
  }
}

void SurvivalPlans::set_batch(plan::BatchPlan batch, std::vector<Rank> ranks) {
  batch_ = std::move(batch);
  batch_ranks_ = std::move(ranks);
}

plan::BatchPlan SurvivalPlans::batch_of(const std::vector<Rank>& left) const {
  plan::BatchPlan batch = batch_;
  if (left != batch_ranks_) {
    batch.local_batch = planner::divide_batch(
        plan_.batch.local_batch, left,
        std::accumulate(batch_.local_batch.begin(), batch_.local_batch.end(), std::int64_t{0}));
  }
  return fitted(std::move(batch), left);
}

plan::BatchPlan SurvivalPlans::fitted(plan::BatchPlan batch, const std::vector<Rank>& left) const {
  if (std::ranges::none_of(left, [this](Rank rank) { return factors_.contains(rank); })) {
    return batch;
  }
  std::vector<planner::DeviceSpeed> devices =
      planner::device_speeds(cluster_of(left), workload_, batch.accumulation);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (const auto factors = factors_.find(left[i]); factors != factors_.end()) {
      const auto passes = static_cast<double>(batch.accumulation);
      const runtime::ComputeLine line =
          runtime::slow_line(factors->second, line_of(devices[i], batch.accumulation));
      devices[i].fixed = Duration::from_seconds(line.fixed / passes);
      devices[i].per_sample = Duration::from_seconds(line.per_sample);
    }
  }
  const std::int64_t samples =
      std::accumulate(batch.local_batch.begin(), batch.local_batch.end(), std::int64_t{0});
  if (auto divided = planner::equal_finish(devices, samples)) {
    batch.local_batch = *std::move(divided);
  }
  return batch;
}

plan::Plan SurvivalPlans::plan_for(const std::vector<Rank>& left) const {
  return plan_for(left, batch_of(left));
}

plan::Plan SurvivalPlans::plan_for(const std::vector<Rank>& left, plan::BatchPlan batch) const {
  const topology::Topology cluster = cluster_of(left);
  cluster.require_connected();
  if (std::ranges::min(batch.local_batch) < 1) {
    throw PlanError("a step of " + std::to_string(batch.global_batch()) +
                    " samples is too small for " + std::to_string(left.size()) + " ranks");
  }

  planner::PlannerOptions options = planner::options_in_place_of(plan_, workload_);
  options.error_budget = planner::budget_in_use(plan_);
  options.schedule = schedule_;
  options.route_rates = route_rates_;
  options.local_batch = std::ranges::max(batch.local_batch);
  options.stop = [end = std::chrono::steady_clock::now() +
                        std::chrono::nanoseconds(at_most_.picoseconds() / 1000)] {
    return std::chrono::steady_clock::now() >= end;
  };
  const auto costs = sim::make_cost_model(cluster, {});
  plan::Plan plan = planner::make_plan(cluster, workload_, *costs, options);
  plan.batch = std::move(batch);
  return plan;
}

std::string SurvivalPlans::Weighed::text() const {
  return plan ? fmt::format("a step is predicted to take {} instead of {}", to_string(better),
                            to_string(kept))
              : fmt::format("plan kept: a step takes {} with it and {} with another",
                            to_string(kept), to_string(better));
}

SurvivalPlans::Weighed SurvivalPlans::weigh(const plan::Plan& in_use,
                                            const std::vector<Rank>& ranks) const {
  plan::Plan other = plan_for(ranks);
  Weighed weighed{.kept = step_time_of(in_use, ranks), .better = step_time_of(other, ranks)};
  if (weighed.better < scaled(weighed.kept, 1 - kWorthIt)) {
    weighed.plan = std::move(other);
  }
  return weighed;
}

Duration SurvivalPlans::step_time_of(plan::Plan plan, const std::vector<Rank>& left) const {
  const topology::Topology cluster = cluster_of(left);
  plan.cluster_digest = cluster.digest();
  sim::SimulationOptions options;
  const std::int64_t passes = plan.batch.accumulation;
  const std::vector<planner::DeviceSpeed> devices =
      factors_.empty() ? std::vector<planner::DeviceSpeed>()
                       : planner::device_speeds(cluster, workload_, passes);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (const auto factors = factors_.find(left[i]); factors != factors_.end()) {
      const runtime::ComputeLine well = line_of(devices[i], passes);
      const std::int64_t samples = plan.batch.local_batch.at(i) * passes;
      const double factor =
          runtime::slow_line(factors->second, well).at(samples) / well.at(samples);
      options.disturbances.slow_devices.push_back({.ranks = {Rank(i)}, .factor = factor});
    }
  }
  return sim::make_cost_model(cluster, options)->step(plan, workload_).step_time;
}

}  // namespace rackrail::cli
