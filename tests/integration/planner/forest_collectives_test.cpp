// Collectives along forests, simulated, against the exact bounds.
#include <catch2/catch.hpp>

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

}  // namespace
}  // namespace rackrail::planner
