#include "explore/evaluate.hpp"

#include <algorithm>

#include "base/random.hpp"
#include "explore/plan_options.hpp"
#include "plan/workload.hpp"
#include "planner/batch/batch.hpp"
#include "sim/scenario.hpp"
#include "topology/reader.hpp"

namespace rackrail::explore {

namespace {

/// Sorts them; of an even number, the mean of the two in the middle.
double median(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace

double value_of(const Figures& figures, const Objective& objective) {
  if (objective.name == "throughput") {
    return figures.throughput;
  }
  if (objective.name == "goodput") {
    return figures.goodput;
  }
  if (objective.name == "sync_share") {
    return figures.sync_share;
  }
  return objective.name == "gap" ? figures.gap : figures.step_time_s;
}

Figures evaluate(const Cell& cell, plan::Plan* made, const std::function<bool()>& stop) {
  PlanChoice choice = read_plan_choice(cell.plan);
  choice.options.seed = cell.seed;
  choice.options.stop = stop;
  choice.options.compare_baselines = made != nullptr;
  const topology::Topology cluster = read_cluster_source(cell.cluster);
  const plan::Workload workload = plan::read_workload_text(cell.workload.text, cell.workload.file);
  const auto cost_model = sim::make_cost_model(cluster, {});
  plan::Plan plan = choice.naive
                        ? planner::make_naive_plan(cluster, workload, *cost_model, choice.options)
                        : planner::make_plan(cluster, workload, *cost_model, choice.options);
  if (made != nullptr) {
    *made = plan;
  }
  sim::SimulationOptions simulation;
  if (cell.faults) {
    simulation =
        sim::parse_scenario(cell.faults->file.string(), cell.faults->text, cluster).options;
  }
  simulation.record_critical_path = false;
  const std::uint64_t seed_of_faults = simulation.disturbances.seed;
  std::vector<plan::StepEstimate> steps;
  for (int i = 0; i < cell.repetitions; ++i) {
    plan.seed = random_bits(cell.seed, static_cast<std::uint64_t>(i));
    simulation.disturbances.seed = random_bits(plan.seed, seed_of_faults);
    const sim::StepResult result = sim::simulate_step(plan, workload, cluster, simulation);
    steps.push_back(result.estimate);
    if (result.steps.size() > 1) {
      steps.back().step_time = result.mean_step_time;
    }
  }
  std::vector<double> times;
  std::vector<double> shares;
  for (const plan::StepEstimate& step : steps) {
    times.push_back(step.step_time.seconds());
    shares.push_back(step.sync_share);
  }
  Figures figures;
  figures.executions = cell.repetitions;
  figures.step_time_s = median(times);
  figures.executions_equal = times.front() == times.back();
  figures.sync_share = median(shares);
  figures.bound_s = plan.prediction.bound.seconds();
  figures.gap = figures.step_time_s / figures.bound_s - 1;
  figures.global_batch = plan.batch.global_batch();
  figures.throughput = static_cast<double>(figures.global_batch) / figures.step_time_s;
  figures.goodput =
      figures.throughput * planner::statistical_efficiency(workload, figures.global_batch);
  return figures;
}

}  // namespace rackrail::explore
