#include "cli/survival.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <numeric>
#include <ranges>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "planner/batch/equal_finish.hpp"
#include "planner/planner.hpp"
#include "planner/replan/replan.hpp"
#include "planner/search/survivors.hpp"
#include "sim/simulator.hpp"
#include "topology/remove.hpp"

namespace rackrail::cli {

namespace {

// Each that is known may cost a copy of the cluster when a plan is weighed.
constexpr std::size_t kMostConditions = 8;

/// Of a step of so many passes.
runtime::ComputeLine line_of(const planner::DeviceSpeed& device, std::int64_t passes) {
  return {device.fixed.seconds() * static_cast<double>(passes), device.per_sample.seconds()};
}

std::function<bool()> stop_after(Duration time) {
  return [end = std::chrono::steady_clock::now() +
                std::chrono::nanoseconds(time.picoseconds() / 1000)] {
    return std::chrono::steady_clock::now() >= end;
  };
}

/// Of two states of one cluster.
std::vector<planner::LinkChange> rate_changes(const topology::Topology& before,
                                              const topology::Topology& now) {
  std::vector<planner::LinkChange> changes;
  for (std::size_t i = 0; i < now.link_count(); ++i) {
    const Bandwidth rate = now.link(LinkId(i)).bandwidth;
    if (rate != before.link(LinkId(i)).bandwidth) {
      changes.push_back({LinkId(i), rate});
    }
  }
  return changes;
}

/// What `plan` makes, with the time that it took.
template <typename Plan>
auto timed(const Plan& plan) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = plan();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  return std::pair(std::move(result), Duration::from_seconds(spent.count()));
}

/// What the first plan was asked to have is no wish for those that a running job makes, which is to
/// go on as fast as it can.
plan::Plan free_of_wishes(plan::Plan plan) {
  plan.only_schedule.clear();
  plan.only_bucket_size = Bytes();
  return plan;
}

}  // namespace

SurvivalPlans::SurvivalPlans(plan::Plan plan, topology::Topology cluster, plan::Workload workload,
                             Duration at_most)
    : plan_(free_of_wishes(std::move(plan))),
      cluster_(std::move(cluster)),
      workload_(std::move(workload)),
      at_most_(at_most),
      batch_(plan_.batch) {
  for (std::size_t r = 0; r < plan_.rank_count(); ++r) {
    batch_ranks_.emplace_back(r);
  }
}

topology::Topology SurvivalPlans::cluster_of(const std::vector<Rank>& left) const {
  return cluster_of(left, conditions_.back());
}

topology::Topology SurvivalPlans::cluster_of(const std::vector<Rank>& left,
                                             const Rates& rates) const {
  std::vector<std::string> lost;
  for (std::size_t r = 0; r < cluster_.rank_count(); ++r) {
    if (!std::ranges::binary_search(left, Rank(r))) {
      lost.push_back(cluster_.node(cluster_.node_of(Rank(r))).name);
    }
  }
  topology::Topology now = cluster_;
  for (const auto& [link, rate] : rates) {
    now.set_link_rate(link, rate, now.link(link).latency);
  }
  return topology::without(now, lost, {});
}

void SurvivalPlans::set_condition(const Rates& rates, runtime::BatchFactors factors) {
  if (rates != conditions_.back()) {
    std::erase(conditions_, rates);
    conditions_.push_back(rates);
    if (conditions_.size() > kMostConditions) {
      conditions_.erase(conditions_.begin());
    }
  }
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
  return plan_for(left, std::move(batch), stop_after(at_most_));
}

plan::Plan SurvivalPlans::plan_for(const std::vector<Rank>& left, plan::BatchPlan batch,
                                   const Stop& stop) const {
  const topology::Topology cluster = cluster_of(left);
  cluster.require_connected();
  if (std::ranges::min(batch.local_batch) < 1) {
    throw PlanError("a step of " + std::to_string(batch.global_batch()) +
                    " samples is too small for " + std::to_string(left.size()) + " ranks");
  }

  planner::PlannerOptions options = planner::options_in_place_of(plan_, workload_, cluster);
  options.error_budget = planner::budget_in_use(plan_);
  options.schedule = schedule_;
  options.route_rates = route_rates_;
  options.local_batch = std::ranges::max(batch.local_batch);
  options.stop = stop;
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

/// None where the plan is for no condition that was known here.
std::optional<topology::Topology> SurvivalPlans::planned_for(const plan::Plan& plan,
                                                             const std::vector<Rank>& ranks) const {
  for (const Rates& rates : std::views::reverse(conditions_)) {
    topology::Topology cluster = cluster_of(ranks, rates);
    if (cluster.digest() == plan.cluster_digest) {
      return cluster;
    }
  }
  return std::nullopt;
}

/// None where only a plan for everything will do.
std::optional<SurvivalPlans::Other> SurvivalPlans::planned_again(const plan::Plan& in_use,
                                                                 const std::vector<Rank>& ranks,
                                                                 const Stop& stop) const {
  const auto before = planned_for(in_use, ranks);
  if (!before || in_use.workload_digest != workload_.digest()) {
    return std::nullopt;
  }
  const topology::Topology now = cluster_of(ranks);
  plan::Plan old = free_of_wishes(in_use);
  old.error_budget = planner::budget_in_use(plan_);
  old.batch = batch_of(ranks);
  if (old.batch.local_batch != in_use.batch.local_batch ||
      old.batch.accumulation != in_use.batch.accumulation) {
    old.prediction.step_time = sim::make_cost_model(*before, {})->step(old, workload_).step_time;
  }
  const std::vector<planner::LinkChange> changes = rate_changes(*before, now);
  auto [again, time] = timed([&] {
    const auto costs = sim::make_cost_model(now, {});
    return planner::replan(old, *before, now, changes, workload_, *costs, route_rates_, stop);
  });
  const bool is_of_family =
      !schedule_ || std::ranges::all_of(again.plan.schedules, [this](const auto& graph) {
        return graph.name() == *schedule_;
      });
  if (!is_of_family) {
    return std::nullopt;
  }
  if (changes.empty()) {
    again.plan.notes = {"the same schedules with other samples"};
  }
  Other other{.plan = {}, .changes = changes_of(again, in_use)};
  other.changes.planning_time = time;
  other.plan = std::move(again.plan);
  return other;
}

SurvivalPlans::Other SurvivalPlans::planned_anew(const plan::Plan& in_use,
                                                 const std::vector<Rank>& left) const {
  return planned_anew(in_use, left, stop_after(at_most_));
}

SurvivalPlans::Other SurvivalPlans::planned_anew(const plan::Plan& in_use,
                                                 const std::vector<Rank>& left,
                                                 const Stop& stop) const {
  auto [plan, time] = timed([&] { return plan_for(left, batch_of(left), stop); });
  Other other{.plan = std::move(plan), .changes = {}};
  other.changes = changes_between(in_use, other.plan, workload_);
  other.changes.planning_time = time;
  return other;
}

SurvivalPlans::Weighed SurvivalPlans::weigh(const plan::Plan& in_use,
                                            const std::vector<Rank>& ranks) const {
  const Duration kept = step_time_of(in_use, ranks);
  Weighed weighed{.kept = kept, .better = kept};
  const auto consider = [&](Other other) {
    const Duration time = step_time_of(other.plan, ranks);
    const bool is_first = !weighed.changes;
    if (is_first || time < weighed.better) {
      weighed.better = time;
      weighed.changes = std::move(other.changes);
      weighed.plan = std::move(other.plan);
    }
    return weighed.better < scaled(kept, 1 - kWorthIt);
  };
  const Stop stop = stop_after(at_most_);
  std::optional<Other> again;
  try {
    again = planned_again(in_use, ranks, stop);
  } catch (const Error&) {
    again.reset();  // a plan for everything may do all the same
  }
  const bool is_worth_it =
      (again && consider(*std::move(again))) || consider(planned_anew(in_use, ranks, stop));
  if (!is_worth_it) {
    weighed.plan.reset();
    weighed.changes.reset();
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
