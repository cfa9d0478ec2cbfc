// Bounds and forests: time, and how near to the optimum they and the simulated collectives come.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "planner/packing/forest.hpp"
#include "tests/support/best_collective.hpp"
#include "tests/support/broken_grids.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/grids.hpp"
#include "tests/support/random_clusters.hpp"
#include "tests/support/tree_lengths.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail {
namespace {

using topology::Topology;

constexpr std::int64_t kElements = std::int64_t{1} << 28;  // 1 GiB

/// As near to the bound as possible.
constexpr planner::ForestOptions kNearest{.most_trees_per_rank = 16, .good_enough = 0.9999};

/// "exact": 0 where what is found may be out of reach.
template <typename Find>
void bound(benchmark::State& state, const Topology& topology, const Find& find) {
  bool may_be_out_of_reach = false;
  for (auto _ : state) {
    may_be_out_of_reach = find(topology).may_be_out_of_reach;
  }
  state.counters["ranks"] = static_cast<double>(topology.rank_count());
  state.counters["exact"] = may_be_out_of_reach ? 0 : 1;
}

void allgather_bound(benchmark::State& state, const Topology& topology) {
  bound(state, topology, topology::allgather_bound);
}

void reducescatter_bound(benchmark::State& state, const Topology& topology) {
  bound(state, topology, topology::reducescatter_bound);
}

/// The joint optimum of reduction and broadcast; with switches that add and copy, too.
void allreduce_bound(benchmark::State& state, const Topology& topology, bool in_network = false) {
  bound(state, topology, [in_network](const Topology& of) {
    return topology::joint_allreduce_bound(of, in_network);
  });
}

void forest_within(benchmark::State& state, const Topology& topology,
                   const planner::ForestOptions& options) {
  planner::Forest forest;
  for (auto _ : state) {
    forest = planner::make_forest(topology, options);
    if (!planner::problems_of(forest, topology).empty()) {
      state.SkipWithError("the forest is wrong");
    }
  }
  state.counters["ranks"] = static_cast<double>(topology.rank_count());
  state.counters["share"] = forest.share_of_bound;
  state.counters["trees"] = static_cast<double>(forest.trees_per_rank);
  state.counters["depth"] = static_cast<double>(planner::depth_of(forest));
}

void forest(benchmark::State& state, const Topology& topology) {
  forest_within(state, topology, kNearest);
}

void few_trees(benchmark::State& state, const Topology& topology) {
  forest_within(state, topology, {.most_trees_per_rank = 4});
}

void shallow(benchmark::State& state, const Topology& topology) {
  const planner::ForestOptions options{.most_trees_per_rank = 16};
  forest_within(state, topology, options);
  const planner::Forest found = planner::make_forest(topology, options);
  state.counters["diameter"] = static_cast<double>(test::diameter_of(topology));
  state.counters["diameter in arcs"] = static_cast<double>(test::diameter_in_arcs(topology));
  state.counters["depth in links"] = static_cast<double>(test::depth_in_links(found));
}

/// Boxes of 8 GPUs whose NICs have 25, but for one of 12 in every third box.
Topology rails_with_mixed_nics(std::size_t count) {
  std::vector<std::vector<int>> nics(count, std::vector<int>(8, 25));
  for (std::size_t box = 0; box < count; box += 3) {
    nics[box][box % 8] = 12;
  }
  return test::boxes_with_nics(nics, 8);
}

/// Racks of 20 hosts with NICs of 5, 10 and 25 under unlike uplinks.
Topology unlike_racks() {
  std::vector<std::vector<int>> nics(5);
  for (auto& rack : nics) {
    for (int h = 0; h < 20; ++h) {
      rack.push_back(h % 4 == 0 ? 25 : h % 3 == 0 ? 5 : 10);
    }
  }
  return test::racks(nics, {20, 35, 50, 65, 80});
}

/// A path of 16 in rings of four of links that are four times as fast.
Topology cylinder() {
  std::mt19937 random(1);
  return test::grid({{16, false, 1_GBps}, {4, true, 4_GBps}}, random);
}

/// 3 x 5 x 3 in paths, those of one side of three with links of four times the rate.
Topology uneven_grid(Bandwidth rate) {
  std::mt19937 random(1);
  return test::grid({{3, false, scaled(rate, 4)}, {5, false, rate}, {3, false, rate}}, random);
}
// CPUs, which these ranks are, add as fast as the slow ones bring, and less fast than the others.
constexpr Bandwidth kSlowLinks(100'000'000);
constexpr Bandwidth kFastLinks(1'000'000'000);

/// Boxes of 8 GPUs on eight rails whose switches, all of them, reduce and multicast.
Topology able_boxes(int count) {
  return test::able(test::boxes(count, 8),
                    {topology::NodeKind::kNvSwitch, topology::NodeKind::kSpine});
}

void collective(benchmark::State& state, const Topology& topology, plan::Collective what) {
  test::BestCollective best;
  for (auto _ : state) {
    best = test::best_collective(topology, what, kElements);
  }
  state.SetLabel(best.found.graph->label());
  state.counters["ranks"] = static_cast<double>(topology.rank_count());
  state.counters["over"] = best.over_optimum;
  state.counters["exact"] = best.may_be_out_of_reach ? 0 : 1;
}

/// Boxes of 8 GPUs with as many NICs, each a rack of its own, under three spines.
constexpr test::RailRacks kFourRacks{
    .racks = 4, .hosts = 1, .gpus = 8, .nics = 8, .spines = 3, .oversubscription = 1};

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

void reduce_scatter(benchmark::State& state, const Topology& topology) {
  collective(state, topology, plan::Collective::kReduceScatter);
}

#define RACKRAIL_BOUNDS(name, topology)                                                  \
  BENCHMARK_CAPTURE(allgather_bound, name, topology)->Unit(benchmark::kMillisecond);     \
  BENCHMARK_CAPTURE(reducescatter_bound, name, topology)->Unit(benchmark::kMillisecond); \
  BENCHMARK_CAPTURE(allreduce_bound, name, topology)->Unit(benchmark::kMillisecond)
RACKRAIL_BOUNDS(boxes_1024, test::boxes(128, 8));
RACKRAIL_BOUNDS(torus_1024, test::grid(32, 32, true));
RACKRAIL_BOUNDS(mesh_1024, test::grid(32, 32, false));
#undef RACKRAIL_BOUNDS
BENCHMARK_CAPTURE(allreduce_bound, boxes_1024_in_network, able_boxes(128), true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(allreduce_bound, h100_1024_in_network, test::h100_128x8(), true)
    ->Unit(benchmark::kMillisecond);

BENCHMARK_CAPTURE(forest, boxes_16, test::boxes(2, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, boxes_32, test::boxes(4, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, nics_by_gpu_16, test::nics_by_gpu())->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, clos_29, test::clos({8, 5, 7, 6, 3}, 4))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, rail_racks_32, test::rail_racks({}))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, two_kinds_32, test::old_and_new_boxes())->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, lost_cable_32, test::rails_with_lost_cable())
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, boxes_64, test::boxes(8, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, boxes_256, test::boxes(32, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, boxes_1024, test::boxes(128, 2))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, rails_1024, test::boxes(128, 8))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, rails_1024_slow_nic, test::rails_with_slow_nic(128, 12))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, mixed_nics_64, rails_with_mixed_nics(8))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, mixed_nics_256, rails_with_mixed_nics(32))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, clos_64, test::clos({16, 12, 20, 16}, 6))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, torus_64, test::grid(8, 8, true))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, mesh_64, test::grid(8, 8, false))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(forest, torus_256, test::grid(16, 16, true))->Unit(benchmark::kMillisecond);

#define RACKRAIL_FOREST(kind, name, topology) \
  BENCHMARK_CAPTURE(kind, name, topology)->Iterations(1)->Unit(benchmark::kMillisecond)
RACKRAIL_FOREST(few_trees, boxes_16, test::boxes(2, 2));
RACKRAIL_FOREST(few_trees, boxes_24, test::boxes(3, 2));
RACKRAIL_FOREST(few_trees, torus_16, test::grid(4, 4, true));
RACKRAIL_FOREST(few_trees, torus_36, test::grid(6, 6, true));
RACKRAIL_FOREST(few_trees, mesh_64, test::grid(8, 8, false));
RACKRAIL_FOREST(few_trees, clos_6, test::clos({2, 3, 1}, 2));
RACKRAIL_FOREST(few_trees, clos_18, test::clos({8, 4, 6}, 3));
RACKRAIL_FOREST(few_trees, two_racks_4, test::two_racks());
RACKRAIL_FOREST(few_trees, uneven_star_8, test::uneven_star());
RACKRAIL_FOREST(few_trees, cube_mesh_8, test::cube_mesh());
RACKRAIL_FOREST(few_trees, nics_by_gpu_16, test::nics_by_gpu());
RACKRAIL_FOREST(few_trees, clos_64, test::clos({16, 12, 20, 16}, 6));
RACKRAIL_FOREST(few_trees, mixed_nics_256, rails_with_mixed_nics(32));
RACKRAIL_FOREST(shallow, boxes_16, test::boxes(2, 2));
RACKRAIL_FOREST(shallow, boxes_256, test::boxes(32, 2));
RACKRAIL_FOREST(shallow, rails_512, test::boxes(64, 8));
RACKRAIL_FOREST(shallow, torus_64, test::grid(8, 8, true));
RACKRAIL_FOREST(shallow, mesh_64, test::grid(8, 8, false));
RACKRAIL_FOREST(shallow, torus_256, test::grid(16, 16, true));
RACKRAIL_FOREST(shallow, cube_mesh_8, test::cube_mesh());
RACKRAIL_FOREST(shallow, clos_18, test::clos({8, 4, 6}, 3));
RACKRAIL_FOREST(shallow, clos_29, test::clos({8, 5, 7, 6, 3}, 4));
RACKRAIL_FOREST(shallow, three_tiers_14, test::three_tiers({{4, 3}, {5, 2}}, 2));
RACKRAIL_FOREST(shallow, three_tiers_46, test::three_tiers({{8, 5}, {7, 6}, {9, 11}}, 3));
RACKRAIL_FOREST(shallow, uneven_hosts, test::uneven_hosts());

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
RACKRAIL_COLLECTIVES(rail_racks_32, test::rail_racks({}));
RACKRAIL_COLLECTIVES(rail_racks_48,
                     test::rail_racks({.racks = 3, .hosts = 4, .gpus = 4, .oversubscription = 8}));
RACKRAIL_COLLECTIVES(three_tiers_10, test::three_tiers({{2, 3}, {1, 4}}, 2));
RACKRAIL_COLLECTIVES(clos_64, test::clos({16, 12, 20, 16}, 6));
RACKRAIL_COLLECTIVES(a100_128, test::a100_16x8());
RACKRAIL_COLLECTIVES(rails_128, test::boxes(16, 8));
RACKRAIL_COLLECTIVES(fat_tree_128, topology::read_cluster("fat-tree-128-2to1").topology);
RACKRAIL_COLLECTIVES(torus_256, test::grid(16, 16, true));
RACKRAIL_COLLECTIVES(rails_256, test::boxes(32, 8));
// Uneven ones of more than 64 ranks, whose all-reduce two halves do not reach.
RACKRAIL_COLLECTIVES(mesh_81, test::grid(9, 9, false));
RACKRAIL_COLLECTIVES(broken_mesh_96, test::broken_grid(8, 12, false, {{120}}));
RACKRAIL_COLLECTIVES(mixed_nics_96, rails_with_mixed_nics(12));
RACKRAIL_COLLECTIVES(slow_nic_128, test::rails_with_slow_nic(16, 12));
RACKRAIL_COLLECTIVES(uneven_racks_100, unlike_racks());
RACKRAIL_COLLECTIVES(mesh_256, test::grid(16, 16, false));
RACKRAIL_COLLECTIVES(slow_nic_256, test::rails_with_slow_nic(32, 12));
RACKRAIL_COLLECTIVES(slow_nic_512, test::rails_with_slow_nic(64, 12));
// Unlike boxes, racks or leaves in one cluster.
RACKRAIL_COLLECTIVES(two_kinds_32, test::old_and_new_boxes());
RACKRAIL_COLLECTIVES(two_sizes_24, test::large_and_small_boxes());
RACKRAIL_COLLECTIVES(rails_of_two_kinds_36, test::rails_of_two_kinds());
RACKRAIL_COLLECTIVES(racks_of_two_kinds_28, test::racks_of_two_kinds());
RACKRAIL_COLLECTIVES(lost_cable_32, test::rails_with_lost_cable());
// NICs that are slower than others by little, by much, side by side or one behind the other.
RACKRAIL_COLLECTIVES(nic_of_20_64, test::rails_with_slow_nic(8, 20));
RACKRAIL_COLLECTIVES(nic_of_15_64, test::rails_with_slow_nic(8, 15));
RACKRAIL_COLLECTIVES(nic_of_3_64, test::rails_with_slow_nic(8, 3));
RACKRAIL_COLLECTIVES(no_nic_64, test::rails_with_slow_nic(8, 0));
RACKRAIL_COLLECTIVES(slow_diagonal_64, test::rails_with_slow_diagonal());
RACKRAIL_COLLECTIVES(slow_box_24, test::rails_with_slow_boxes(1));
RACKRAIL_COLLECTIVES(slow_boxes_24, test::rails_with_slow_boxes(3));
// Faster than others by as much, and than what its GPU can copy to the seven others at once.
RACKRAIL_COLLECTIVES(nic_of_50_64, test::rails_with_slow_nic(8, 50));
// Grids whose dimensions are unlike.
RACKRAIL_COLLECTIVES(cylinder_64, cylinder());
RACKRAIL_COLLECTIVES(grid_45, uneven_grid(kSlowLinks));
RACKRAIL_COLLECTIVES(fast_grid_45, uneven_grid(kFastLinks));
// Tori of which a cable is lost, or has a third of the rate of the others.
RACKRAIL_COLLECTIVES(broken_torus_100, test::broken_grid(10, 10, true, {{120}}));
RACKRAIL_COLLECTIVES(slow_cable_100,
                     test::broken_grid(10, 10, true, {{120, Bandwidth(333'000'000)}}));
// More than a forest may have.
RACKRAIL_COLLECTIVES(slow_nic_1024, test::rails_with_slow_nic(128, 12));
RACKRAIL_COLLECTIVES(broken_mesh_576, test::broken_grid(24, 24, false, {{120}}));
#undef RACKRAIL_COLLECTIVES
#define RACKRAIL_ALL_REDUCE(name, topology) \
  BENCHMARK_CAPTURE(all_reduce, name, topology)->Iterations(1)->Unit(benchmark::kMillisecond)
RACKRAIL_ALL_REDUCE(mesh_576, test::grid(24, 24, false));
RACKRAIL_ALL_REDUCE(mesh_1024, test::grid(32, 32, false));
RACKRAIL_ALL_REDUCE(rails_1024, test::boxes(128, 8));
RACKRAIL_ALL_REDUCE(torus_1024, test::grid(32, 32, true));
#undef RACKRAIL_ALL_REDUCE
#define RACKRAIL_ONE(kind, name, topology) \
  BENCHMARK_CAPTURE(kind, name, topology)->Iterations(1)->Unit(benchmark::kMillisecond)
RACKRAIL_ONE(reduce_scatter, lost_cable_32, test::rails_with_lost_cable());
RACKRAIL_ONE(reduce_scatter, broken_mesh_576, test::broken_grid(24, 24, false, {{120}}));
RACKRAIL_ONE(all_gather, four_racks_32, test::rail_racks(kFourRacks));
RACKRAIL_ONE(all_gather, rails_1024, test::boxes(128, 8));
RACKRAIL_ONE(reduce_scatter, rails_1024, test::boxes(128, 8));
RACKRAIL_ONE(all_gather, torus_1024, test::grid(32, 32, true));
RACKRAIL_ONE(reduce_scatter, torus_1024, test::grid(32, 32, true));
RACKRAIL_ONE(all_gather, long_torus_1024, test::grid(16, 64, true));
RACKRAIL_ONE(reduce_scatter, long_torus_1024, test::grid(16, 64, true));
RACKRAIL_ONE(all_gather, mesh_1024, test::grid(32, 32, false));
RACKRAIL_ONE(reduce_scatter, mesh_1024, test::grid(32, 32, false));
RACKRAIL_ONE(all_gather, h100_256, topology::read_cluster("h100-32x8-rail").topology);
// Its all-reduce by switches that add is among those in the network.
RACKRAIL_ONE(all_reduce, h100_256,
             test::able(topology::read_cluster("h100-32x8-rail").topology, {}));
RACKRAIL_ONE(reduce_scatter, a100_128, test::a100_16x8());
RACKRAIL_ONE(reduce_scatter, h100_256, topology::read_cluster("h100-32x8-rail").topology);
RACKRAIL_ONE(all_gather, h100_1024, test::h100_128x8());
RACKRAIL_ONE(reduce_scatter, h100_1024, test::h100_128x8());
RACKRAIL_ONE(all_reduce, h100_1024, test::able(test::h100_128x8(), {}));
#undef RACKRAIL_ONE

constexpr std::uint64_t kRandomClusters = 30;
/// Clusters of no particular kind (tests/support/random_clusters.hpp).
const bool kAreRandomOnesThere = [] {
  for (std::uint64_t seed = 0; seed < kRandomClusters; ++seed) {
    for (const auto& [name, what] : {std::pair("all_gather", plan::Collective::kAllGather),
                                     std::pair("reduce_scatter", plan::Collective::kReduceScatter),
                                     std::pair("all_reduce", plan::Collective::kAllReduce)}) {
      benchmark::RegisterBenchmark(fmt::format("{}/random_{}", name, seed).c_str(),
                                   [seed, what = what](benchmark::State& state) {
                                     collective(state, test::random_cluster(seed), what);
                                   })
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace rackrail
