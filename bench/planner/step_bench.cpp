// Simulated steps of plans for 128 ranks on an oversubscribed fat tree, where flows share links and
// end at different times: what the planner spends its time on from 96 ranks on.
//
// Outside the time: making the plan. "flows/s" are messages per second of processor time.
#include <benchmark/benchmark.h>

#include <string>

#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::bench {
namespace {

void simulate(benchmark::State& state, const std::string& schedule, double tolerance) {
  const topology::Topology topology = topology::read_cluster("fat-tree-128-2to1").topology;
  const plan::Workload workload = plan::read_workload("bert-large", topology::configs_folder());
  planner::PlannerOptions options;
  options.schedule = schedule;
  options.codec = plan::Codec{};
  options.bucket_size = 100_MiB;
  options.compare_baselines = false;
  // The plan does not depend on how closely one looks: there is nothing to choose.
  const auto costs = sim::make_cost_model(topology, {.tolerance = 0.1});
  const plan::Plan plan = planner::make_plan(topology, workload, *costs, options);
  sim::SimulationOptions simulation;
  simulation.record_critical_path = false;
  simulation.tolerance = tolerance;
  std::uint64_t flows = 0;
  Duration step;
  for (auto _ : state) {
    const sim::StepResult result = sim::simulate_step(plan, workload, topology, simulation);
    flows += result.flows;
    step = result.estimate.step_time;
  }
  state.counters["flows/s"] =
      benchmark::Counter(static_cast<double>(flows), benchmark::Counter::kIsRate);
  state.counters["step ms"] = step.seconds() * 1e3;
}
BENCHMARK_CAPTURE(simulate, halving_doubling_exact, "halving-doubling", 0.0)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate, halving_doubling_within_1_percent, "halving-doubling", 0.01)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate, hierarchical_exact, "hierarchical", 0.0)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate, double_binary_tree_exact, "double-binary-tree", 0.0)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rackrail::bench
