// The torus family in the simulator, against closed forms of the bucket algorithm and the exact
// bounds.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/tuning/fastest_collective.hpp"
#include "sim/simulator.hpp"
#include "tests/support/broken_grids.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/free_devices.hpp"
#include "tests/support/grids.hpp"
#include "topology/queries.hpp"

namespace rackrail::torus_test {
namespace {

using test::Side;

// Only the network takes time.
sim::SimulationOptions network_only() {
  sim::SimulationOptions options;
  options.device_rates = test::free_devices();
  return options;
}

struct Case {
  std::vector<Side> sides;
  double links;  // of a rank, over which the buffer is spread
  double hops;   // one after the other, there and back
};

TEST_CASE("on tori of equal sides all links of a rank are busy all the time") {
  // Sides of four are two dimensions of two ranks, one hop each. A path counts as the one link of
  // its end.
  const Case shape =
      GENERATE(Case{{{4, true}, {4, true}}, 4, 8}, Case{{{3, true}, {3, true}}, 4, 8},
               Case{{{5, true}, {5, true}}, 4, 16}, Case{{{3, true}, {3, true}, {3, true}}, 6, 12},
               Case{{{8, true}, {8, true}}, 4, 28}, Case{{{7, true}}, 2, 12},
               Case{{{2, false}}, 1, 2}, Case{{{6, false}}, 1, 10});
  constexpr std::uint32_t kSeed = 1;
  std::mt19937 random(kSeed);
  const topology::Topology topology = test::grid(shape.sides, random);
  topology::Router router(topology);
  const auto graph = planner::schedule_family("torus").all_reduce({topology, router, {}});
  const auto n = static_cast<double>(topology.rank_count());
  const topology::Link& link = topology.link(LinkId(0U));
  const auto rate = static_cast<double>(link.bandwidth.bytes_per_second());
  for (const std::int64_t elements : {1 << 16, 1 << 22, 1 << 28}) {
    const double bytes = 4.0 * static_cast<double>(elements);
    const double least = 2 * (n - 1) / n * bytes / (shape.links * rate);
    const double time =
        sim::simulate_collective(graph, elements, elements, topology, network_only())
            .time.seconds();
    CAPTURE(n, shape.links, elements, time, least);
    CHECK(time >= least);
    CHECK(time == Approx(least + shape.hops * link.latency.seconds()).epsilon(0.01));
    // No all-reduce can be faster than the joint optimum of the topology.
    const auto bound = topology::allreduce_bound(topology).algbw.bytes_per_second();
    CHECK(time >= bytes / static_cast<double>(bound) * (1 - 1e-9));
  }
}

TEST_CASE("on a torus the bucket algorithm is faster than a ring by its links") {
  constexpr std::uint32_t kSeed = 2;
  std::mt19937 random(kSeed);
  const topology::Topology topology = test::grid({{4, true}, {4, true}}, random);
  topology::Router router(topology);
  const auto time = [&](const char* family, std::int64_t elements) {
    const auto graph = planner::schedule_family(family).all_reduce({topology, router, {}});
    return sim::simulate_collective(graph, elements, elements, topology, network_only())
        .time.seconds();
  };
  CHECK(time("ring", 1 << 28) / time("torus", 1 << 28) >= 3.9);
  CHECK(time("torus", 256) < time("ring", 256) / 3);  // 8 hops instead of 30
}

/// Simulated time of the family's fastest collective of 1 GiB, over the least that is possible.
double over_bound(const topology::Topology& topology, plan::Collective what, Bandwidth bound,
                  const sim::SimulationOptions& options = {}, const char* family = "torus") {
  constexpr std::int64_t kElements = std::int64_t{1} << 28;
  const auto costs = sim::make_cost_model(topology, options);
  const auto found = planner::fastest_collective(
      planner::schedule_family(family),
      {.what = what, .elements = kElements, .topology = topology, .codecs = {}, .costs = *costs});
  CHECK(plan::verify(*found.value().graph, &topology).problems == std::vector<std::string>{});
  return found->time.seconds() * static_cast<double>(bound.bytes_per_second()) / (4.0 * kElements);
}

TEST_CASE("halves of the bucket algorithm are near the exact bounds on tori and meshes") {
  struct Grid {
    int rows;
    int columns;
    bool wrap;
    double most;
  };
  const Grid grid =
      GENERATE(Grid{8, 8, true, 1.003}, Grid{8, 8, false, 1.003}, Grid{4, 8, true, 1.004},
               Grid{5, 7, true, 1.004}, Grid{5, 20, true, 1.005}, Grid{4, 12, false, 1.003},
               Grid{16, 16, true, 1.003}, Grid{16, 16, false, 1.003});
  const topology::Topology topology = test::grid(grid.rows, grid.columns, grid.wrap);
  for (const auto what : {plan::Collective::kAllGather, plan::Collective::kReduceScatter}) {
    const double over = over_bound(topology, what,
                                   what == plan::Collective::kAllGather
                                       ? topology::allgather_bound(topology).algbw
                                       : topology::reducescatter_bound(topology).algbw);
    CAPTURE(grid.rows, grid.columns, grid.wrap, static_cast<int>(what), over);
    CHECK(over >= 1 - 1e-5);
    CHECK(over <= grid.most);
  }
}

TEST_CASE(
    "an all-reduce along trees on a mesh is near the joint optimum, which halves are far from") {
  const topology::Topology topology = test::grid(9, 9, false);
  // Partitions into single ranks allow no more: 2 * 80 moves of each element over 4 * 9 * 8 links.
  const Bandwidth optimum(std::int64_t{1'000'000'000} * 9 * 4 * 8 / (2 * 80));
  CHECK(topology::joint_allreduce_bound(topology).algbw <= optimum + Bandwidth(1'000));
  const double over = over_bound(topology, plan::Collective::kAllReduce, optimum);
  CAPTURE(over);
  CHECK(over >= 1 - 1e-5);
  CHECK(over <= 1.012);
}

TEST_CASE("an all-reduce on unlike paths and rings is near to what partitions allow") {
  constexpr std::uint32_t kSeed = 3;
  std::mt19937 random(kSeed);
  // 2 * 34 moves of each element over 7 paths of 4 links and 5 rings of 7, all of them both ways.
  const topology::Topology topology =
      test::grid({{5, false, Bandwidth(400'000'000)}, {7, true, Bandwidth(250'000'000)}}, random);
  const Bandwidth optimum(
      (std::int64_t{400'000'000} * 2 * 7 * 4 + std::int64_t{250'000'000} * 2 * 5 * 7) / (2 * 34));
  const double over = over_bound(topology, plan::Collective::kAllReduce, optimum);
  CAPTURE(over);
  CHECK(over >= 1 - 1e-5);
  CHECK(over <= 1.015);
}

TEST_CASE("an all-reduce is near to what partitions allow where few trees go a long way") {
  constexpr std::uint32_t kSeed = 3;
  std::mt19937 random(kSeed);
  // All trees end along the path of 16, so there are four of them: 2 * 15 moves of each element
  // over 4 paths of 15 links, both ways.
  const topology::Topology topology = test::grid({{16, false, 1_GBps}, {4, true, 4_GBps}}, random);
  const Bandwidth optimum(std::int64_t{1'000'000'000} * 2 * 4 * 15 / (2 * 15));
  const double over = over_bound(topology, plan::Collective::kAllReduce, optimum);
  CAPTURE(over);
  CHECK(over >= 1 - 1e-5);
  CHECK(over <= 1.015);
}

TEST_CASE("an all-reduce is near to what partitions allow on three unlike paths") {
  constexpr std::uint32_t kSeed = 3;
  std::mt19937 random(kSeed);
  // 2 * 44 moves of each element over 15 paths of 2 fast links, 9 of 4 slow ones and 15 of 2.
  const auto over = [&](std::int64_t slow, const sim::SimulationOptions& options) {
    const topology::Topology topology = test::grid(
        {{3, false, Bandwidth(4 * slow)}, {5, false, Bandwidth(slow)}, {3, false, Bandwidth(slow)}},
        random);
    return over_bound(topology, plan::Collective::kAllReduce,
                      Bandwidth(slow * 2 * (4 * 15 * 2 + 9 * 4 + 15 * 2) / (2 * 44)), options);
  };
  // So slow that CPUs, which these ranks are, add in time; and ten times as fast, where the one in
  // the middle adds up about twice the buffer, for longer than its links are busy.
  const double slow = over(100'000'000, {});
  const double fast = over(1'000'000'000, {});
  const double fast_without_additions = over(1'000'000'000, network_only());
  CAPTURE(slow, fast, fast_without_additions);
  CHECK(slow >= 1 - 1e-5);
  CHECK(slow <= 1.012);
  CHECK(fast_without_additions >= 1 - 1e-5);
  CHECK(fast_without_additions <= 1.012);
  CHECK(fast > 1.1);  // what trees that balance additions, too, would be for
}

TEST_CASE("a mesh and a torus that have lost a cable, or have a slow one, are near their bounds") {
  struct Grid {
    bool wrap;
    test::BrokenCable cable;
  };
  const Grid grid =
      GENERATE(Grid{false, {20}}, Grid{true, {20}}, Grid{true, {20, Bandwidth(300'000'000)}});
  const topology::Topology topology = test::broken_grid(5, 6, grid.wrap, {grid.cable});
  const auto over = [&](plan::Collective what, Bandwidth bound) {
    return over_bound(topology, what, bound, {}, "forest");
  };
  const double all_gather =
      over(plan::Collective::kAllGather, topology::allgather_bound(topology).algbw);
  const double reduce_scatter =
      over(plan::Collective::kReduceScatter, topology::reducescatter_bound(topology).algbw);
  const double all_reduce =
      over(plan::Collective::kAllReduce, topology::joint_allreduce_bound(topology).algbw);
  CAPTURE(grid.wrap, grid.cable.rate.has_value(), all_gather, reduce_scatter, all_reduce);
  CHECK(std::min({all_gather, reduce_scatter, all_reduce}) >= 1 - 1e-5);
  CHECK(all_gather <= 1.01);
  CHECK(reduce_scatter <= 1.01);
  CHECK(all_reduce <= 1.015);
}

}  // namespace
}  // namespace rackrail::torus_test
