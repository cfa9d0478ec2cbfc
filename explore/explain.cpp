#include "explore/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "explore/altered.hpp"
#include "explore/changes.hpp"
#include "explore/parallel.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"

namespace rackrail::explore {
namespace {

std::vector<Part> parts_of(const sim::StepResult& step, const topology::Topology& topology) {
  std::map<std::string, Duration> times;
  for (const sim::PathPiece& piece : step.records.critical_path) {
    std::string what = piece.kind;
    if (piece.link) {
      const topology::Link& link = topology.link(*piece.link);
      what += ": " + (link.tier.empty() ? std::string(to_string(link.kind)) : link.tier);
    }
    times[what] += piece.end - piece.start;
  }
  std::vector<Part> parts;
  for (const auto& [what, time] : times) {
    parts.push_back({what, time, time / step.estimate.step_time});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.time > b.time; });
  return parts;
}

/// Step time of a plan made for these circumstances, with the batch and error budget of `plan`.
Duration replanned_time(const plan::Plan& plan, const plan::Workload& workload,
                        const topology::Topology& topology,
                        const sim::SimulationOptions& simulation) {
  planner::PlannerOptions options;
  options.error_budget = plan.error_budget;
  options.local_batch = plan.batch.local_batch.front();
  options.seed = plan.seed;
  options.compare_baselines = false;
  const auto cost_model = sim::make_cost_model(topology, simulation);
  plan::Plan anew = planner::make_plan(topology, workload, *cost_model, options);
  anew.batch = plan.batch;
  return sim::simulate_step(anew, workload, topology, simulation).estimate.step_time;
}

Gain try_out(const Change& change, const plan::Plan& plan, const plan::Workload& workload,
             const topology::Topology& topology, bool replan) {
  const topology::Topology cluster = change.links ? with_links(topology, change.links) : topology;
  const plan::Workload work =
      change.device_speed == 1 ? workload : with_speed(workload, change.device_speed);
  sim::SimulationOptions simulation;
  simulation.record_critical_path = false;
  simulation.device_rates = change.device_rates;
  Gain gain{.what = change.what,
            .change = change.by,
            .step_time = sim::simulate_step(plan, work, cluster, simulation).estimate.step_time,
            .gain = 0,
            .is_marginal = change.is_marginal,
            .is_broad = change.is_broad};
  if (replan) {
    gain.kept_plan_time = gain.step_time;
    gain.step_time = std::min(gain.step_time, replanned_time(plan, work, cluster, simulation));
  }
  return gain;
}

}  // namespace

const Gain* Explanation::bottleneck() const {
  const auto largest = [&](bool is_broad) -> const Gain* {
    const auto it = std::find_if(gains.begin(), gains.end(), [&](const Gain& gain) {
      return gain.is_marginal && gain.is_broad == is_broad && gain.gain > 0;
    });
    return it == gains.end() ? nullptr : &*it;
  };
  const Gain* single = largest(false);
  const Gain* broad = largest(true);
  return broad != nullptr && (single == nullptr || broad->gain > 2 * single->gain) ? broad : single;
}

Explanation explain(const plan::Plan& plan, const plan::Workload& workload,
                    const topology::Topology& topology, const ExplainOptions& options) {
  Explanation result;
  const sim::StepResult step = sim::simulate_step(plan, workload, topology, {});
  result.step_time = step.estimate.step_time;
  result.parts = parts_of(step, topology);

  std::vector<Change> changes = changes_of(topology, result.notes);
  if (options.replan) {
    changes.push_back({.what = "plan",
                       .by = "anew",
                       .is_marginal = false,
                       .links = {},
                       .device_speed = 1,
                       .device_rates = std::nullopt});
  }
  result.gains.resize(changes.size());
  std::mutex mutex;
  std::size_t done = 0;
  for_each_index(changes.size(), thread_count(options.threads, changes.size()), [&](std::size_t i) {
    Gain gain = try_out(changes[i], plan, workload, topology, options.replan);
    gain.gain = 1 - gain.step_time / result.step_time;
    const std::lock_guard lock(mutex);
    result.gains[i] = std::move(gain);
    if (options.progress) {
      options.progress(++done, changes.size());
    }
  });
  std::stable_sort(result.gains.begin(), result.gains.end(),
                   [](const Gain& a, const Gain& b) { return a.gain > b.gain; });
  return result;
}

}  // namespace rackrail::explore
