// A cost model keeps what it knows of schedules from one simulation to the next: that must not
// show.
#include <catch2/catch.hpp>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::shared_layouts_test {
namespace {

constexpr std::int64_t kSlice = 1 << 12;

TEST_CASE("collectives take as long where the schedule was simulated before, at any size",
          "[slow]") {
  const plan::Codec codec{.kind = GENERATE(plan::CodecKind::kNone, plan::CodecKind::kFp16)};
  const bool has_boxes = GENERATE(false, true);
  const topology::Topology topology = has_boxes ? test::boxes(2, 2) : test::clos({3, 5, 4}, 2);
  topology::Router router(topology);
  const TierCodecs codecs{codec, codec};
  const auto costs = sim::make_cost_model(topology, {});
  std::size_t compared = 0;
  for (const auto& family : schedule_families()) {
    if (family->refusal(topology, codecs).has_value()) {
      continue;
    }
    // Below the number of chunks some move nothing; sizes come again after others.
    for (const plan::TransferGraph& graph : family->all_reduces({topology, router, codecs})) {
      const plan::TransferGraph copy = graph;
      for (const std::int64_t elements : {1, 7, 100'000, 5, 1'000'003, 100'000, 40'000}) {
        CAPTURE(family->name(), elements);
        const Duration alone = sim::simulate_collective(graph, elements, kSlice, topology, {}).time;
        REQUIRE(costs->collective_time(graph, elements, kSlice) == alone);
        REQUIRE(costs->collective_time_below(copy, elements, kSlice, alone + Duration(1)) == alone);
        ++compared;
      }
    }
  }
  CHECK(compared > 20);
}

TEST_CASE("a graph that has grown since is another one") {
  const topology::Topology topology = test::two_racks();
  topology::Router router(topology);
  const auto costs = sim::make_cost_model(topology, {});
  plan::TransferGraph graph("growing", plan::Collective::kAllReduce, topology.rank_count(), {1});
  const RouteId route = graph.add_route(router.route(Rank(0), Rank(1)));
  const auto send = [&](std::size_t src, std::size_t dst, RouteId over) {
    graph.add_transfer({.src = Rank(src), .dst = Rank(dst), .route = over}, {});
    return costs->collective_time(graph, 1'000'000, 1 << 18);
  };
  const Duration once = send(0, 1, route);
  CHECK(send(0, 1, route) > once);
}

}  // namespace
}  // namespace rackrail::planner::shared_layouts_test
