// Collectives along forests, simulated, against the exact bounds; the best of all families is held
// against them in best_collectives_test.cpp.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "planner/tuning/fastest_collective.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::forest_collectives_test {
namespace {

using topology::Topology;

/// Simulated time of the fastest graph of a family, over the least that is possible.
double over_optimum(const Topology& topology, plan::Collective what, Bandwidth optimum) {
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  topology::Router router(topology);
  const auto costs = sim::make_cost_model(topology, {});
  double least = 1e300;
  for (const CollectiveForm& form :
       schedule_family("forest").collectives(what, {.topology = topology,
                                                   .router = router,
                                                   .codecs = {},
                                                   .most_rounds = 256,
                                                   .most_transfers = 250'000})) {
    const plan::TransferGraph& graph = form.graph();
    CHECK(plan::verify(graph, &topology).ok());
    least = std::min(least, costs->collective_time(graph, kElements, 1 << 18).seconds());
  }
  return least * static_cast<double>(optimum.bytes_per_second()) / (4.0 * kElements);
}

/// The same of the faster of ring and forest, divided as `rackrail simulate --schedule best` does.
double best_over_optimum(const Topology& topology, plan::Collective what, Bandwidth optimum) {
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  topology::Router router(topology);
  const auto costs = sim::make_cost_model(topology, {});
  Duration least(std::numeric_limits<std::int64_t>::max());
  for (const char* family : {"ring", "forest"}) {
    const std::vector<CollectiveForm> forms =
        collective_forms(schedule_family(family), what, topology, router, {});
    const DividedCollective found =
        fastest_division(shapes_of(forms), kElements, [&](std::size_t form, std::int64_t slice) {
          return costs->collective_time(forms[form].graph(), kElements, slice);
        });
    CHECK(plan::verify(forms[found.form].graph(), &topology).ok());
    least = std::min(least, found.time);
  }
  return least.seconds() * static_cast<double>(optimum.bytes_per_second()) / (4.0 * kElements);
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

TEST_CASE("1 GiB over trees between unlike hosts") {
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  const struct {
    Topology topology;
    double most;  // over the optimum; along trees of ranks 1.046 and 1.061
  } cases[] = {{test::racks_of_two_kinds(), 1.016}, {test::rails_with_lost_cable(), 1.048}};
  for (const auto& c : cases) {
    const auto costs = sim::make_cost_model(c.topology, {});
    const auto found =
        fastest_collective(schedule_family("forest"), {.what = plan::Collective::kAllReduce,
                                                       .elements = kElements,
                                                       .topology = c.topology,
                                                       .codecs = {},
                                                       .costs = *costs});
    REQUIRE(found);
    CHECK(plan::verify(*found->graph, &c.topology).ok());
    const Bandwidth optimum = topology::joint_allreduce_bound(c.topology).algbw;
    CHECK(found->time.seconds() * static_cast<double>(optimum.bytes_per_second()) /
              (4.0 * kElements) <=
          c.most);
  }
}

TEST_CASE("few pairs of ranks fill links of uneven ways better than many") {
  const Topology topology = star_of_uneven_ways(
      {{5, 5}, {20, 20}, {5, 5}, {5, 5}, {5, 20}, {5, 20}, {10, 5}, {5, 10}, {10, 20}});
  // 1.43 where data goes between all pairs alike.
  CHECK(best_over_optimum(topology, plan::Collective::kAllReduce,
                          topology::joint_allreduce_bound(topology).algbw) <= 1.02);
}

}  // namespace
}  // namespace rackrail::planner::forest_collectives_test
