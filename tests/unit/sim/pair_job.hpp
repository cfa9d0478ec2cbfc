// Two ranks on one link each way, devices that cost nothing unless the test gives them work: what
// tests of disturbances hold closed forms against.
#pragma once

#include <cstdint>
#include <span>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "sim/simulator.hpp"
#include "tests/support/free_devices.hpp"
#include "topology/topology.hpp"

namespace rackrail::test {

inline constexpr LinkId kForth(0);  // rank 0 → rank 1

inline topology::Topology pair() {
  topology::Topology topology("pair");
  const NodeId a = topology.add_node({.name = "a", .kind = topology::NodeKind::kHost, .host = "a"});
  const NodeId b = topology.add_node({.name = "b", .kind = topology::NodeKind::kHost, .host = "b"});
  topology.add_rank(a);
  topology.add_rank(b);
  topology.add_duplex_link({.from = a, .to = b, .bandwidth = Bandwidth(1'000'000'000)});
  return topology;
}

inline sim::SimulationOptions network_only() {
  sim::SimulationOptions options;
  options.device_rates = free_devices();
  return options;
}

/// 4 MB from rank 0 to rank 1: 4 ms.
inline sim::CollectiveResult four_megabytes(const sim::SimulationOptions& options) {
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 2, {1});
  const RouteId route = graph.add_route({});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = route}, {});
  return sim::simulate_collective(graph, 1'000'000, 1'000'000, pair(), options);
}

/// Forward 10 ms, backward 20 ms, optimiser 1 ms; gradients that become ready at the end of it.
struct Job {
  topology::Topology topology = pair();
  plan::Workload workload;
  plan::Plan plan;

  explicit Job(std::int64_t elements) {
    workload.name = "job";
    workload.tensors = {{"all", elements, 20_ms}};
    workload.forward = 10_ms;
    workload.fixed_share = 0;
    workload.optimizer = 1_ms;
    plan.name = "job";
    plan.rank_names = {"a", "b"};
    plan.workload_digest = workload.digest();
    plan.workload_name = workload.name;
    plan::TransferGraph graph("exchange", plan::Collective::kAllReduce, 2, {1, 1});
    const RouteId route = graph.add_route({});
    const auto send = [&](std::uint32_t chunk, std::uint32_t src, plan::TransferOp op,
                          std::span<const TransferId> after) {
      return graph.add_transfer(
          {.src = Rank(src), .dst = Rank(1 - src), .chunk_begin = chunk, .op = op, .route = route},
          after);
    };
    const TransferId sum0 = send(0, 0, plan::TransferOp::kReduce, {});
    const TransferId sum1 = send(1, 1, plan::TransferOp::kReduce, {});
    send(0, 1, plan::TransferOp::kCopy, {&sum0, 1});
    send(1, 0, plan::TransferOp::kCopy, {&sum1, 1});
    plan.schedules = {graph};
    plan.buckets = {{.tensors = {0}, .elements = elements, .slice_elements = elements}};
    plan.batch.local_batch = {1, 1};
  }
  sim::StepResult run(const sim::SimulationOptions& options) const {
    return sim::simulate_step(plan, workload, topology, options);
  }
};

inline double mean_step_ms(const sim::StepResult& result) {
  return result.mean_step_time.seconds() * 1e3;
}

}  // namespace rackrail::test
