#include "explore/tune.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "plan/workload.hpp"
#include "planner/batch/batch.hpp"
#include "topology/reader.hpp"

namespace rackrail::explore {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20U;
constexpr std::int64_t kBatchFactor = 4;
constexpr std::int64_t kTrials = 50;
// FP32 only, with FP16, with 8-bit blocks (see plan::relative_error).
constexpr double kErrorBudgets[] = {0, 0.001, 0.02};
constexpr int kExecutions = 3;

bool fits(const topology::Topology& cluster, const plan::Workload& workload, std::int64_t batch) {
  planner::PlannerOptions options;
  options.local_batch = batch;
  try {
    planner::local_batches(cluster, workload, options);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

Axis batch_axis(const topology::Topology& cluster, const plan::Workload& workload) {
  Axis axis{.path = "plan.local_batch", .values = {}, .range = std::nullopt};
  const std::int64_t profiled = workload.profiled_batch;
  std::set<std::int64_t> batches;
  for (std::int64_t factor = kBatchFactor; factor > 1; factor /= 2) {
    batches.insert(std::max<std::int64_t>(1, profiled / factor));
    batches.insert(profiled * factor);
  }
  batches.insert(profiled);
  for (const std::int64_t batch : batches) {
    if (fits(cluster, workload, batch)) {
      axis.values.push_back(std::to_string(batch));
    }
  }
  if (axis.values.empty()) {
    throw ConfigError(ErrorContext{
        "", fmt::format("model '{}'", workload.name),
        fmt::format("more memory needed for {} samples than '{}' has", *batches.begin(),
                    cluster.name()),
        "a scenario with smaller batches in plan.local_batch, or devices with more memory"});
  }
  return axis;
}

Axis budget_axis(double error_budget) {
  Axis axis{.path = "plan.error_budget", .values = {}, .range = std::nullopt};
  for (const double budget : kErrorBudgets) {
    if (budget < error_budget) {
      axis.values.push_back(fmt::format("{}", budget));
    }
  }
  axis.values.push_back(fmt::format("{}", error_budget));
  return axis;
}

Axis bucket_axis(const plan::Workload& workload) {
  Axis axis{.path = "plan.bucket_size", .values = {}, .range = std::nullopt};
  const std::int64_t whole = (workload.gradient_bytes().count() + kMebibyte - 1) / kMebibyte;
  if (whole <= 1) {
    axis.values = {"1 MiB"};
  } else {
    axis.range = Range{
        .from = 1, .to = static_cast<double>(whole), .unit = " MiB", .log = true, .whole = false};
  }
  return axis;
}

}  // namespace

Scenario tuning_scenario(Source cluster, Source workload, double error_budget) {
  const topology::Topology topology = read_cluster_source(cluster);
  const plan::Workload model = plan::read_workload_text(workload.text, workload.file);
  Scenario scenario;
  scenario.name = fmt::format("{} on {}", model.name, topology.name());
  scenario.inputs = {cluster.file, workload.file};
  scenario.cluster = std::move(cluster);
  scenario.workload = std::move(workload);
  scenario.plan = {{"error_budget", fmt::format("{}", error_budget)}};
  scenario.axes = {bucket_axis(model), batch_axis(topology, model), budget_axis(error_budget)};
  scenario.trials = kTrials;
  scenario.repetitions = kExecutions;
  scenario.objective = &objective_named("goodput");
  return scenario;
}

TuneResult tune(const Scenario& scenario, const SweepOptions& options) {
  for (const Axis& axis : scenario.axes) {
    if (!axis.path.starts_with("plan.")) {
      throw ConfigError(ErrorContext{
          scenario.inputs.empty() ? "" : scenario.inputs.front().string(), "vary." + axis.path,
          "a field that is no option of the planner", "plan.<option>, or rackrail sweep"});
    }
  }
  TuneResult result;
  const Cells cells(scenario);
  Cell alone;
  alone.number = cells.size();
  alone.cluster = scenario.cluster;
  alone.workload = scenario.workload;
  alone.plan = scenario.plan;
  alone.faults = scenario.faults;
  alone.repetitions = scenario.repetitions;
  alone.seed = scenario.seed;
  result.planner_alone = run_cell(alone, options);
  if (options.stop && options.stop()) {
    return result;
  }
  result.trials = run_sweep(cells, options);

  std::vector<Row> all{result.planner_alone};  // the simplest wins among equals
  all.insert(all.end(), result.trials.rows.begin(), result.trials.rows.end());
  if (const Row* best = best_row(all, *scenario.objective)) {
    result.best = *best;
  } else {
    throw ConfigError(ErrorContext{scenario.cluster.file.string(), "",
                                   "no trial that succeeded: " + result.planner_alone.error,
                                   "options that allow a plan"});
  }
  evaluate(result.planner_alone_is_best() ? alone : cells.at(result.best.cell), &result.plan);
  return result;
}

}  // namespace rackrail::explore
