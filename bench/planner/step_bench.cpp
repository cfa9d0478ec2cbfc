// Simulated steps of plans for 128 ranks on an oversubscribed fat tree, where flows share links and
// end at different times: what the planner spends its time on from 96 ranks on.
//
// Outside the time: making the plan. "flows/s" are messages per second of processor time.
//
// And steps of whole plans on clusters whose ranks are unlike: how near they come to their bounds.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <set>
#include <string>

#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/broken_grids.hpp"
#include "tests/support/clusters.hpp"
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

/// bert-large on devices so fast that compute hides nearly nothing of the network.
plan::Workload communication() {
  constexpr double kShare = 0.02;
  plan::Workload workload = plan::read_workload("bert-large", topology::configs_folder());
  workload.device_class.clear();
  workload.forward = scaled(workload.forward, kShare);
  workload.optimizer = scaled(workload.optimizer, kShare);
  for (plan::GradientTensor& tensor : workload.tensors) {
    tensor.ready_gap = scaled(tensor.ready_gap, kShare);
  }
  return workload;
}

/// "over": the step of a plan in FP32 over its bound; the label is what its buckets use.
void network_step(benchmark::State& state, const topology::Topology& topology) {
  const plan::Workload workload = communication();
  planner::PlannerOptions options;
  options.codec = plan::Codec{};
  options.compare_baselines = false;
  plan::Plan plan;
  for (auto _ : state) {
    const auto costs = sim::make_cost_model(topology, {});
    plan = planner::make_plan(topology, workload, *costs, options);
  }
  std::set<std::string> names;
  for (const plan::Bucket& bucket : plan.buckets) {
    names.insert(plan.schedules.at(bucket.schedule).label());
  }
  state.SetLabel(fmt::format("{}", fmt::join(names, ", ")));
  state.counters["ranks"] = static_cast<double>(topology.rank_count());
  state.counters["step ms"] = plan.prediction.step_time.seconds() * 1e3;
  state.counters["over"] = 1 + plan.prediction.gap;
}

#define RACKRAIL_NETWORK_STEP(name, topology) \
  BENCHMARK_CAPTURE(network_step, name, topology)->Unit(benchmark::kMillisecond)->Iterations(1)
RACKRAIL_NETWORK_STEP(mesh_35, test::grid(5, 7, false));
RACKRAIL_NETWORK_STEP(broken_torus_30, test::broken_grid(5, 6, true, {{4}}));
RACKRAIL_NETWORK_STEP(cube_mesh_8, test::cube_mesh());
RACKRAIL_NETWORK_STEP(nics_6, test::hosts_with_nics(6, {10, 25, 25, 40}));
RACKRAIL_NETWORK_STEP(large_and_small_24, test::large_and_small_boxes());
RACKRAIL_NETWORK_STEP(old_and_new_32, test::old_and_new_boxes());
RACKRAIL_NETWORK_STEP(slow_nic_32, test::rails_with_slow_nic(4, 10));
RACKRAIL_NETWORK_STEP(slow_diagonal_64, test::rails_with_slow_diagonal());
RACKRAIL_NETWORK_STEP(slow_box_24, test::rails_with_slow_boxes(1));
RACKRAIL_NETWORK_STEP(uneven_hosts_13, test::uneven_hosts());
RACKRAIL_NETWORK_STEP(no_nics_12, test::missing_nics());
RACKRAIL_NETWORK_STEP(lost_cable_32, test::rails_with_lost_cable());
RACKRAIL_NETWORK_STEP(racks_of_two_kinds_28, test::racks_of_two_kinds());

}  // namespace
}  // namespace rackrail::bench
