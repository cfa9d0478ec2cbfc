// 1 GiB by the best of all families, as `rackrail simulate --schedule best` finds it, simulated,
// against the exact bounds: at most 1.02 times the optimum, but for a dead or slow NIC of
// 16 and a lost cable. Bars are little above what is reached
// (results/planner.md), and none is below 1 / 0.98 of it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "plan/verifier.hpp"
#include "tests/support/best_collective.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/skip.hpp"
#include "topology/linear_program.hpp"

namespace rackrail::best_collectives_test {
namespace {

using plan::Collective;
using topology::NodeKind;
using topology::Topology;

constexpr std::int64_t kElements = std::int64_t{1} << 28;

struct Case {
  std::string name;
  Topology topology;
  double all_gather;  // most, over the optimum; 0: not looked at
  double all_reduce;
  /// Looked at alone where all of them take more than seconds: the best of all is as fast or
  /// faster, but for half a percent that is not looked for.
  std::string family = {};
};

void check(const Case& c, Collective what, double most) {
  if (most == 0) return;
  const test::BestCollective best = test::best_collective(c.topology, what, kElements, c.family);
  CAPTURE(best.family, best.over_optimum);
  CHECK(plan::verify(*best.found.graph, &c.topology).problems == std::vector<std::string>{});
  // Faster than what is said to be the optimum would be a bound that is none.
  CHECK(best.over_optimum >= 1 - 1e-5);
  CHECK(best.over_optimum <= most);
}

void check(const std::vector<Case>& cases) {
  if (!topology::LinearProgram::is_available()) {
    RACKRAIL_SKIP("no solver for linear programs in this build");
  }
  for (const Case& c : cases) {
    CAPTURE(c.name, c.topology.rank_count());
    check(c, Collective::kAllGather, c.all_gather);
    check(c, Collective::kAllReduce, c.all_reduce);
  }
}

/// Two boxes of 8 GPUs with NICs of 25, but for the first ones of the first box.
Topology two_boxes(const std::vector<int>& first, int rails) {
  std::vector<std::vector<int>> nics(2, std::vector<int>(8, 25));
  std::copy(first.begin(), first.end(), nics.front().begin());
  return test::boxes_with_nics(nics, rails);
}

TEST_CASE("1 GiB between boxes with NVSwitches is near the optimum") {
  check({{"two boxes on two spines", test::boxes(2, 2), 1.006, 1.014}});
}

TEST_CASE("1 GiB between boxes on rails is near the optimum") {
  check({{"two boxes", test::boxes(2, 8), 1.0085, 1.014},
         {"eight boxes", test::boxes(8, 8), 1.005, 1.012, "hierarchical"}});
}

TEST_CASE("1 GiB on tori is near the optimum") {
  check({{"torus of 4 x 4", test::grid(4, 4, true), 1.005, 1.002},
         {"torus of 4 x 5", test::grid(4, 5, true), 1.003, 1.003},
         {"torus of 2 x 2 x 2", test::cuboid(2, 2, 2), 1.006, 1.004},
         {"torus of 3 x 3 x 3", test::cuboid(3, 3, 3), 1.006, 1.005},
         {"torus of 2 x 3 x 4", test::cuboid(2, 3, 4), 1.006, 1.007}});
}

TEST_CASE("1 GiB on meshes and the cube mesh of a DGX-1 is near the optimum") {
  check({{"mesh of 3 x 4", test::grid(3, 4, false), 1.002, 1.007},
         {"mesh of 4 x 4", test::grid(4, 4, false), 1.002, 1.007},
         {"cube mesh", test::cube_mesh(), 1.002, 1.002}});
}

TEST_CASE("1 GiB over oversubscribed and uneven Clos networks is near the optimum") {
  check({{"four racks, 2 to 1", test::clos({4, 4, 4, 4}, 2), 1.002, 1.002},
         {"racks of 2, 4 and 6", test::clos({2, 4, 6}, 2), 1.002, 1.002},
         {"racks of 1, 4 and 7", test::clos({1, 4, 7}, 2), 1.002, 1.002},
         {"three tiers", test::three_tiers({{2, 3}, {1, 4}}, 2), 1.002, 1.002}});
}

TEST_CASE("1 GiB between racks of unlike hosts is near the optimum") {
  check(
      {{"three racks of two", test::racks({{25, 10}, {5, 10}, {5, 5}}, {5, 10, 20}), 1.002, 1.008},
       {"unlike racks", test::racks({{10, 10, 10, 10}, {5, 5, 10}, {25, 5, 25, 10}}, {20, 10, 5}),
        1.002, 1.011}});
}

TEST_CASE("1 GiB over rails under oversubscribed spines is near the optimum") {
  check({{"two racks", test::rail_racks({}), 1.008, 1.009}});
}

TEST_CASE("1 GiB between hosts with unlike NICs is near the optimum") {
  check({{"one of eight slow", test::uneven_star(), 1.002, 1.007},
         {"two NICs each", test::hosts_with_nics(4, {25, 25}), 1.002, 1.002},
         {"four NICs each", test::hosts_with_nics(4, {25, 25, 25, 25}), 1.002, 1.002},
         {"two unlike NICs each", test::hosts_with_nics(5, {25, 10}), 1.002, 1.002}});
}

TEST_CASE("1 GiB between hosts whose GPUs have unlike NICs is near the optimum") {
  check({{"by host", test::nics_by_host(), 1.002, 1.007, "hierarchical"},
         {"by GPU", test::nics_by_gpu(), 1.008, 1.006},
         {"missing NICs", test::missing_nics(), 1.007, 1.007}});
}

TEST_CASE("1 GiB between hosts with two PCIe switches is near the optimum") {
  check({{"four hosts", test::pcie_hosts(4), 1.009, 1.010}});
}

TEST_CASE("1 GiB between unlike hosts is near the optimum") {
  check({{"unlike hosts", test::uneven_hosts(), 1.006, 1.024}});
}

TEST_CASE("1 GiB past a dead NIC is near the optimum") {
  check({{"one of 16", two_boxes({0}, 2), 1.009, 1.066}});
}

TEST_CASE("1 GiB past slow NICs is near the optimum") {
  check({{"one of 16, on rails", two_boxes({10}, 8), 1.005, 1.045},
         {"four of 16", two_boxes({10, 10, 10, 10}, 2), 1.006, 1.018, "forest"}});
}

TEST_CASE("an all-reduce of 1 GiB past a NIC that is slower by little is near the optimum") {
  check({{"15 of 25, eight boxes", test::rails_with_slow_nic(8, 15), 0, 1.0165, "hierarchical"}});
}

TEST_CASE("an all-gather of 1 GiB over pairs of cables is near the optimum") {
  // A NIC has two thirds of its rate by one cable: pieces go both ways round.
  check({{"four racks of a box",
          test::rail_racks(
              {.racks = 4, .hosts = 1, .gpus = 8, .nics = 8, .spines = 3, .oversubscription = 1}),
          1.0195, 0, "hierarchical"}});
}

TEST_CASE("all-reduces of 1 GiB between boxes of two kinds are near the optimum") {
  check({{"kinds", test::old_and_new_boxes(), 0, 1.013, "hierarchical"},
         {"sizes", test::large_and_small_boxes(), 0, 1.010, "hierarchical"},
         {"on rails", test::rails_of_two_kinds(), 0, 1.010, "hierarchical"}});
}

TEST_CASE("an all-reduce of 1 GiB between racks of two kinds is near the optimum") {
  check({{"racks", test::racks_of_two_kinds(), 0, 1.016, "forest"}});
}

TEST_CASE("an all-reduce of 1 GiB past a lost cable between racks is above the bar by little") {
  // The only one here that is: 1.0204 would be 98 % of the optimum.
  check({{"lost cable", test::rails_with_lost_cable(), 0, 1.048, "forest"}});
}

TEST_CASE("all-reduces of 1 GiB by switches that add are near the in-network optimum") {
  const std::initializer_list<NodeKind> kAll = {NodeKind::kNvSwitch, NodeKind::kTor,
                                                NodeKind::kSpine};
  check({{"one box", test::able(test::boxes(1, 8), {NodeKind::kNvSwitch}), 0, 1.010},
         {"two boxes", test::able(test::boxes(2, 8), {NodeKind::kNvSwitch}), 0, 1.014},
         {"four boxes", test::able(test::boxes(4, 8), {NodeKind::kNvSwitch}), 0, 1.018},
         {"four boxes and spines", test::able(test::boxes(4, 2), kAll), 0, 1.014},
         {"Clos", test::able(test::clos({4, 4, 4, 4}, 4), kAll), 0, 1.006},
         {"Clos, 2 to 1", test::able(test::clos({4, 4, 4, 4}, 2), kAll), 0, 1.006},
         {"uneven Clos", test::able(test::clos({2, 4, 6}, 2), kAll), 0, 1.006}});
}

}  // namespace
}  // namespace rackrail::best_collectives_test
