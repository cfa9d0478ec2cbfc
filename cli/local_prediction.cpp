#include "cli/local_prediction.hpp"

#include <utility>
#include <vector>

#include "base/ids.hpp"

namespace rackrail::cli {

namespace {

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

plan::Plan on_other_topology(const plan::Plan& plan, const topology::Topology& topology) {
  plan::Plan moved = plan;
  moved.cluster_name = topology.name();
  moved.cluster_digest = topology.digest();
  for (std::size_t i = 0; i < moved.rank_names.size(); ++i) {
    moved.rank_names[i] = topology.node(topology.node_of(Rank(i))).name;
  }
  for (plan::TransferGraph& graph : moved.schedules) {
    graph = without_routes(graph);
  }
  return moved;
}

sim::StepResult predict_here(const plan::Plan& plan, const plan::Workload& workload,
                             const Calibration& calibration) {
  const topology::Topology machine = local_machine(calibration, plan.rank_count());
  sim::SimulationOptions options;
  options.device_rates = calibration.rates;
  options.record_timeline = true;
  options.steps = kStepsUntilSteady;
  return sim::simulate_step(on_other_topology(plan, machine), workload, machine, options);
}

}  // namespace rackrail::cli
