// Bounds and forests: time, and how near to the optimum they and the simulated collectives come.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/forest/forest.hpp"
#include "planner/schedule_family.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail {
namespace {

using topology::Topology;

constexpr Bytes kData = Bytes(std::int64_t{1} << 30);
constexpr std::int64_t kElements = kData.count() / 4;
// Rounds and slices that are tried for a large collective.
constexpr std::size_t kMostRounds = 256;
constexpr std::size_t kMostTransfers = 2'000'000;
constexpr std::int64_t kSlices[] = {1 << 16, 1 << 20};

/// As near to the bound as possible.
constexpr planner::ForestOptions kNearest{.most_trees_per_rank = 16, .good_enough = 0.9999};

void bound(benchmark::State& state, const Topology& topology) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(topology::allgather_bound(topology));
  }
  state.counters["ranks"] = static_cast<double>(topology.rank_count());
}

void forest(benchmark::State& state, const Topology& topology) {
  planner::Forest forest;
  for (auto _ : state) {
    forest = planner::make_forest(topology, kNearest);
    if (!planner::problems_of(forest, topology).empty()) {
      state.SkipWithError("the forest is wrong");
    }
  }
  state.counters["ranks"] = static_cast<double>(topology.rank_count());
  state.counters["share"] = forest.share_of_bound;
  state.counters["trees"] = static_cast<double>(forest.trees_per_rank);
  state.counters["depth"] = static_cast<double>(planner::depth_of(forest));
}

/// Simulated time of the best of some slices over the least time there can be.
double over_optimum(const plan::TransferGraph& graph, const Topology& topology, Bandwidth optimum) {
  const auto costs = sim::make_cost_model(topology, {});
  double best = 1e300;
  for (const std::int64_t slice : kSlices) {
    best = std::min(best, costs->collective_time(graph, kElements, slice).seconds());
  }
  return best * static_cast<double>(optimum.bytes_per_second()) /
         static_cast<double>(kData.count());
}

/// The best of all families.
void collective(benchmark::State& state, const Topology& topology, plan::Collective what) {
  topology::Router router(topology);
  const planner::ScheduleRequest request{.topology = topology,
                                         .router = router,
                                         .codecs = {},
                                         .most_rounds = kMostRounds,
                                         .most_transfers = kMostTransfers};
  const Bandwidth optimum = what == plan::Collective::kAllReduce
                                ? topology::joint_allreduce_bound(topology).algbw
                                : topology::allgather_bound(topology).algbw;
  double ratio = 1e300;
  std::string best;
  for (auto _ : state) {
    for (const auto& family : planner::schedule_families()) {
      if (family->refusal(topology, {})) {
        continue;
      }
      for (const auto& form : family->collectives(what, request)) {
        const double over = over_optimum(form.graph(), topology, optimum);
        if (over < ratio) {
          ratio = over;
          best = family->name();
        }
      }
    }
  }
  state.SetLabel(best);
  state.counters["ranks"] = static_cast<double>(topology.rank_count());
  state.counters["over"] = ratio;
}

/// Two boxes of 8 GPUs with NICs of 25, but for the first ones of the first box.
std::vector<std::vector<int>> nics_with(const std::vector<int>& others) {
  std::vector<std::vector<int>> nics(2, std::vector<int>(8, 25));
  std::copy(others.begin(), others.end(), nics.front().begin());
  return nics;
}

void all_gather(benchmark::State& state, const Topology& topology) {
  collective(state, topology, plan::Collective::kAllGather);
}

void all_reduce(benchmark::State& state, const Topology& topology) {
  collective(state, topology, plan::Collective::kAllReduce);
}

BENCHMARK_CAPTURE(bound, boxes_1024, test::boxes(128, 8))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bound, torus_1024, test::grid(32, 32, true))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bound, mesh_1024, test::grid(32, 32, false))->Unit(benchmark::kMillisecond);

BENCHMARK_CAPTURE(forest, boxes_16, test::boxes(2, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, boxes_32, test::boxes(4, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, boxes_64, test::boxes(8, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, boxes_256, test::boxes(32, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, boxes_1024, test::boxes(128, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, rails_1024, test::boxes(128, 8))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, torus_64, test::grid(8, 8, true))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, mesh_64, test::grid(8, 8, false))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, torus_256, test::grid(16, 16, true))->Unit(benchmark::kMillisecond);

#define RACKRAIL_COLLECTIVES(name, topology)                                                   \
  BENCHMARK_CAPTURE(all_gather, name, topology)->Iterations(1)->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(all_reduce, name, topology)->Iterations(1)->Unit(benchmark::kMillisecond)
RACKRAIL_COLLECTIVES(boxes_16, test::boxes(2, 2));
RACKRAIL_COLLECTIVES(boxes_32, test::boxes(4, 2));
RACKRAIL_COLLECTIVES(rails_64, test::boxes(8, 8));
RACKRAIL_COLLECTIVES(torus_16, test::grid(4, 4, true));
RACKRAIL_COLLECTIVES(torus_64, test::grid(8, 8, true));
RACKRAIL_COLLECTIVES(mesh_16, test::grid(4, 4, false));
RACKRAIL_COLLECTIVES(mesh_64, test::grid(8, 8, false));
RACKRAIL_COLLECTIVES(clos_16_2to1, test::clos({4, 4, 4, 4}, 2));
RACKRAIL_COLLECTIVES(uneven_clos_12, test::clos({2, 4, 6}, 2));
RACKRAIL_COLLECTIVES(cube_mesh_8, test::cube_mesh());
RACKRAIL_COLLECTIVES(uneven_star_8, test::uneven_star());
RACKRAIL_COLLECTIVES(dead_nic_16, test::boxes_with_nics(nics_with({0}), 2));
RACKRAIL_COLLECTIVES(slow_nic_16, test::boxes_with_nics(nics_with({10}), 8));
RACKRAIL_COLLECTIVES(mixed_nics_16, test::boxes_with_nics(nics_with({10, 10, 10, 10}), 2));
RACKRAIL_COLLECTIVES(nics_by_host_16, test::nics_by_host());
RACKRAIL_COLLECTIVES(nics_by_gpu_16, test::nics_by_gpu());
RACKRAIL_COLLECTIVES(uneven_hosts_13, test::uneven_hosts());
RACKRAIL_COLLECTIVES(missing_nics_12, test::missing_nics());
RACKRAIL_COLLECTIVES(two_nics_4, test::hosts_with_nics(4, {25, 25}));
RACKRAIL_COLLECTIVES(four_nics_4, test::hosts_with_nics(4, {25, 25, 25, 25}));
RACKRAIL_COLLECTIVES(odd_clos_12, test::clos({1, 4, 7}, 2));
RACKRAIL_COLLECTIVES(uneven_racks_6, test::racks({{25, 10}, {5, 10}, {5, 5}}, {5, 10, 20}));
RACKRAIL_COLLECTIVES(uneven_racks_11,
                     test::racks({{10, 10, 10, 10}, {5, 5, 10}, {25, 5, 25, 10}}, {20, 10, 5}));
RACKRAIL_COLLECTIVES(pcie_hosts_16, test::pcie_hosts(4));
RACKRAIL_COLLECTIVES(three_tiers_10, test::three_tiers({{2, 3}, {1, 4}}, 2));
#undef RACKRAIL_COLLECTIVES

}  // namespace
}  // namespace rackrail
