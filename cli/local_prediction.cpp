#include "cli/local_prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/ids.hpp"

namespace rackrail::cli {

namespace {

// Of a round of local steps all but the last are alike: with more of them only the mean changes.
constexpr std::int64_t kMostAlikeSteps = 1000;
constexpr int kAsynchronousSteps = 50;

plan::TransferGraph without_routes(const plan::TransferGraph& graph) {
  const auto weights = graph.chunk_weights();
  plan::TransferGraph copy(graph.name(), graph.collective(), graph.rank_count(),
                           {weights.begin(), weights.end()});
  for (const plan::Codec& codec : graph.codecs()) {
    copy.add_codec(codec);
  }
  const RouteId unpinned = copy.add_route({});
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    plan::Transfer transfer = graph.transfers()[i];
    transfer.route = unpinned;
    copy.add_transfer(transfer, graph.dependencies(TransferId(i)));
  }
  return copy;
}

}  // namespace

topology::Topology local_machine(const plan::Calibration& calibration, std::size_t ranks) {
  using topology::LinkKind;
  using topology::NodeKind;
  topology::Topology machine("this machine");
  const NodeId in = machine.add_node({.name = "memory-in", .kind = NodeKind::kSwitch});
  const NodeId out = machine.add_node({.name = "memory-out", .kind = NodeKind::kSwitch});
  const auto cores = static_cast<std::int64_t>(calibration.cores);
  const LinkId shared = machine.add_link({.from = in,
                                          .to = out,
                                          .bandwidth = calibration.core_bandwidth * cores,
                                          .latency = calibration.latency,
                                          .kind = LinkKind::kOther,
                                          .tier = "cores",
                                          .overhead = calibration.message_overhead,
                                          .cpu_share = 1.0 / static_cast<double>(cores)});
  for (std::size_t i = 0; i < ranks; ++i) {
    const NodeId worker = machine.add_node({.name = fmt::format("worker{}", i),
                                            .kind = NodeKind::kHost,
                                            .host = fmt::format("worker{}", i),
                                            .device_class = "cpu"});
    const Rank rank = machine.add_rank(worker);
    // Sender and receiver each do about half of the work of a message, on a thread of their own.
    const Bandwidth one_end = calibration.core_bandwidth * 2;
    machine.add_link({.from = worker,
                      .to = in,
                      .bandwidth = one_end,
                      .kind = LinkKind::kOther,
                      .tier = "worker"});
    machine.add_link({.from = out,
                      .to = worker,
                      .bandwidth = one_end,
                      .kind = LinkKind::kOther,
                      .tier = "worker"});
    machine.set_processor(rank, shared);
  }
  return machine;
}

plan::Plan on_other_topology(const plan::Plan& plan, const topology::Topology& topology) {
  plan::Plan moved = plan;
  moved.cluster_name = topology.name();
  moved.cluster_digest = topology.digest();
  for (std::size_t i = 0; i < moved.rank_names.size(); ++i) {
    moved.rank_names[i] = topology.node(topology.node_of(Rank(i))).name;
  }
  moved.adapters.clear();  // no route is left that names one
  for (plan::Bucket& bucket : moved.buckets) {
    bucket.codec_tiers.clear();  // nor a tier
  }
  for (plan::TransferGraph& graph : moved.schedules) {
    graph = without_routes(graph);
  }
  return moved;
}

namespace {

sim::SimulationOptions options_here(const plan::Calibration& calibration, int steps) {
  sim::SimulationOptions options;
  options.device_rates = calibration.rates;
  options.steps = steps;
  return options;
}

TrainingPrediction predict_local_steps(const plan::Plan& plan, const plan::Workload& workload,
                                       const topology::Topology& machine,
                                       const plan::Calibration& calibration,
                                       std::int64_t local_steps) {
  const int between = static_cast<int>(std::min(local_steps, kMostAlikeSteps));
  sim::SimulationOptions options = options_here(calibration, kStepsUntilSteady * between);
  options.local_steps = between;
  options.record_timeline = true;
  sim::StepResult result = sim::simulate_step(plan, workload, machine, options);
  return {result.mean_step_time, std::move(result.records.timeline), {}, {}};
}

TrainingPrediction predict_asynchronous(const plan::Plan& plan, const plan::Workload& workload,
                                        const topology::Topology& machine,
                                        const plan::Calibration& calibration) {
  sim::SimulationOptions options = options_here(calibration, kAsynchronousSteps);
  options.is_asynchronous = true;
  const sim::AsynchronousResult result =
      sim::simulate_asynchronous(plan, workload, machine, options);
  return {*std::ranges::max_element(result.step_times), {}, result.conflict_rate, result.staleness};
}

sim::StepResult predict_step(const plan::Plan& plan, const plan::Workload& workload,
                             const topology::Topology& machine,
                             const plan::Calibration& calibration) {
  sim::SimulationOptions options = options_here(calibration, kStepsUntilSteady);
  options.record_timeline = true;
  return sim::simulate_step(plan, workload, machine, options);
}

}  // namespace

sim::StepResult predict_here(const plan::Plan& plan, const plan::Workload& workload,
                             const plan::Calibration& calibration) {
  const topology::Topology machine = local_machine(calibration, plan.rank_count());
  return predict_step(on_other_topology(plan, machine), workload, machine, calibration);
}

TrainingPrediction predict_training(const plan::Plan& plan, const plan::Workload& workload,
                                    const topology::Topology& machine,
                                    const plan::Calibration& calibration,
                                    const trainer::Synchrony& synchrony) {
  if (synchrony.local_steps) {
    return predict_local_steps(plan, workload, machine, calibration, *synchrony.local_steps);
  }
  if (synchrony.staleness.value_or(0) > 0) {
    return predict_asynchronous(plan, workload, machine, calibration);
  }
  sim::StepResult step = predict_step(plan, workload, machine, calibration);
  TrainingPrediction prediction{step.estimate.step_time, std::move(step.records.timeline), {}, {}};
  if (synchrony.staleness) {
    prediction.conflict_rate = 0;  // nobody reads before all updates of a step are there
    prediction.staleness_updates = 0;
  }
  return prediction;
}

}  // namespace rackrail::cli
