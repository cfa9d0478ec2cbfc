// Collectives along forests, simulated, against the exact bounds.
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/schedule_family.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner {
namespace {

using topology::Topology;

/// Simulated time of the fastest graph of a family, over the least that is possible.
double over_optimum(const Topology& topology, plan::Collective what, Bandwidth optimum) {
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  topology::Router router(topology);
  const auto costs = sim::make_cost_model(topology, {});
  double least = 1e300;
  for (const plan::TransferGraph& graph :
       schedule_family("forest").collectives(what, {.topology = topology,
                                                   .router = router,
                                                   .codecs = {},
                                                   .most_rounds = 256,
                                                   .most_transfers = 250'000})) {
    CHECK(plan::verify(graph, &topology).ok());
    least = std::min(least, costs->collective_time(graph, kElements, 1 << 18).seconds());
  }
  return least * static_cast<double>(optimum.bytes_per_second()) / (4.0 * kElements);
}

/// GPUs on one switch: gigabytes per second out of each, and into it.
Topology star_of_uneven_ways(const std::vector<std::pair<int, int>>& gpus) {
  Topology topology("uneven ways");
  const NodeId middle = topology.add_node({.name = "switch", .kind = topology::NodeKind::kTor});
  const auto add_way = [&](NodeId from, NodeId to, int gigabytes_per_second) {
    topology::Link link;
    link.from = from;
    link.to = to;
    link.bandwidth = Bandwidth(std::int64_t{1'000'000'000} * gigabytes_per_second);
    link.latency = 1_us;
    topology.add_link(link);
  };
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const NodeId gpu = topology.add_node({.name = "gpu" + std::to_string(i),
                                          .kind = topology::NodeKind::kGpu,
                                          .device_class = "A100"});
    topology.add_rank(gpu);
    add_way(gpu, middle, gpus[i].first);
    add_way(middle, gpu, gpus[i].second);
  }
  return topology;
}

TEST_CASE("1 GiB over deep trees is within 2 % of the exact bounds") {
  using plan::Collective;
  for (const Topology& topology :
       {test::grid(4, 4, false), test::grid(4, 4, true), test::boxes(2, 2), test::uneven_star()}) {
    INFO(topology.name());
    CHECK(over_optimum(topology, Collective::kAllGather,
                       topology::allgather_bound(topology).algbw) <= 1.02);
    // Alone, with half the time of an all-reduce, it feels the starts of additions more.
    CHECK(over_optimum(topology, Collective::kReduceScatter,
                       topology::reducescatter_bound(topology).algbw) <= 1.03);
    CHECK(over_optimum(topology, Collective::kAllReduce,
                       topology::joint_allreduce_bound(topology).algbw) <= 1.02);
  }
}

TEST_CASE("few pairs of ranks fill links of uneven ways better than many") {
  const Topology topology = star_of_uneven_ways(
      {{5, 5}, {20, 20}, {5, 5}, {5, 5}, {5, 20}, {5, 20}, {10, 5}, {5, 10}, {10, 20}});
  // 1.43 where data goes between all pairs alike.
  CHECK(over_optimum(topology, plan::Collective::kAllReduce,
                     topology::joint_allreduce_bound(topology).algbw) <= 1.25);
}

}  // namespace
}  // namespace rackrail::planner
