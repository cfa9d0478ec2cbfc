// What is chosen for a size is never slower, simulated, than the schedules that everybody has.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/schedule_table.hpp"
#include "sim/simulator.hpp"
#include "tests/property/topology/random_topology.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::best_schedule_property_test {
namespace {

using topology::Topology;

/// The schedules that there are without a planner, in the slices of plans and in one piece.
std::optional<Duration> fastest_usual(const Topology& topology, std::int64_t elements) {
  topology::Router router = make_router(topology);
  std::optional<Duration> fastest;
  for (const char* name : {"ring", "double-binary-tree", "halving-doubling", "hierarchical",
                           "hierarchical-ring", "hierarchical-tree"}) {
    const ScheduleFamily& family = schedule_family(name);
    if (family.refusal(topology, {})) {
      continue;
    }
    const plan::TransferGraph graph =
        family.all_reduce({.topology = topology, .router = router, .codecs = {}});
    const std::int64_t chunk =
        std::max<std::int64_t>(1, elements / static_cast<std::int64_t>(graph.chunk_count()));
    for (const std::int64_t slice : {elements, std::int64_t{1} << 20U, std::int64_t{1} << 18U}) {
      constexpr std::int64_t kMostSlices = 8;
      if (slice != elements && (slice >= chunk || chunk / slice > kMostSlices)) {
        continue;
      }
      const Duration time = sim::simulate_collective(graph, elements, slice, topology, {}).time;
      fastest = std::min(fastest.value_or(time), time);
    }
  }
  return fastest;
}

/// GPUs on one switch, some with links that are wider one way than the other.
Topology star_of_uneven_ways() {
  Topology topology("uneven ways");
  const NodeId middle = topology.add_node({.name = "switch", .kind = topology::NodeKind::kTor});
  for (const auto& [out, in] : {std::pair(10_GBps, 20_GBps),
                                {20_GBps, 10_GBps},
                                {10_GBps, 10_GBps},
                                {5_GBps, 20_GBps},
                                {20_GBps, 5_GBps}}) {
    const std::string host = "host" + std::to_string(topology.rank_count());
    const NodeId gpu = topology.add_node(
        {.name = host, .kind = topology::NodeKind::kGpu, .host = host, .device_class = "A100"});
    topology.add_rank(gpu);
    topology.add_link({.from = gpu, .to = middle, .bandwidth = out, .latency = 1_us});
    topology.add_link({.from = middle, .to = gpu, .bandwidth = in, .latency = 1_us});
  }
  return topology;
}

/// Whether what the table of one size says is no slower than the usual schedules, and within
/// `slack` of them.
void check_never_slower(const Topology& topology, plan::CostModel& costs, Bytes size,
                        double slack) {
  CAPTURE(topology.name(), topology.rank_count(), size.count());
  ScheduleTableOptions options;
  options.smallest = options.largest = size;
  const ScheduleTable table = make_schedule_table(topology, costs, options);
  REQUIRE(table.rows.size() == 1);
  const TableRow& row = table.rows.front();
  const Duration usual = fastest_usual(topology, size.count() / 4).value();
  CAPTURE(table.families[row.best], row.times[row.best].time / usual);
  CHECK(row.times[row.best].time <= scaled(usual, slack));
}

TEST_CASE("the best of the table is never slower than rings, trees and hierarchies", "[slow]") {
  struct Case {
    Topology topology;
    std::vector<Bytes> sizes;
  };
  const std::vector<Bytes> sizes = {1_KiB, 4_KiB, 32_KiB, 1_MiB, 32_MiB, 1_GiB};
  const std::vector<Bytes> larger = {4_KiB, 32_MiB, 4_GiB};
  const std::vector<Case> cases = {
      {test::boxes(2, 2), sizes},        {test::boxes(4, 8), {1_KiB, 4_KiB, 32_KiB, 1_MiB, 1_GiB}},
      {test::uneven_hosts(), sizes},     {test::clos({4, 2, 3}, 2), sizes},
      {test::clos({8, 4, 6}, 3), sizes}, {test::boxes(12, 8), {1_KiB, 1_MiB, 1_GiB}},
      {test::grid(3, 3, true), larger},  {test::grid(3, 4, false), sizes},
      {test::cuboid(2, 2, 2), larger},   {star_of_uneven_ways(), larger}};
  for (const Case& c : cases) {
    const auto costs = sim::make_cost_model(c.topology, {});
    for (const Bytes size : c.sizes) {
      // With very many ranks, what may be faster by less than half a percent is not simulated.
      const bool is_exact = c.topology.rank_count() < kVeryManyRanks;
      check_never_slower(c.topology, *costs, size, is_exact ? 1 : 1.005);
    }
  }
}

TEST_CASE("the best of the table is never slower than these on random clusters", "[slow]") {
  constexpr std::uint64_t kSeed = 20261126;
  constexpr Bytes kSizes[] = {4_KiB, 256_KiB, 16_MiB, 4_GiB};
  for (std::uint64_t i = 0; i < 20; ++i) {
    CAPTURE(kSeed, i);
    const Topology topology = topology::test::random_topology(kSeed + i, 8, 4);
    const auto costs = sim::make_cost_model(topology, {});
    check_never_slower(topology, *costs, kSizes[i % std::size(kSizes)], 1);
    check_never_slower(topology, *costs, kSizes[(i + 1) % std::size(kSizes)], 1);
  }
}

}  // namespace
}  // namespace rackrail::planner::best_schedule_property_test
