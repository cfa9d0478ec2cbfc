#include "planner/packing/host_trees.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/pipeline/forest_schedule.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/skip.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::host_trees_test {
namespace {

using topology::Topology;

/// Arcs between hosts on the longest way from the root.
std::size_t hops_between_hosts(const Tree& tree, const Topology& topology) {
  std::map<Rank, std::size_t> hops{{tree.root, 0}};
  std::size_t most = 0;
  for (const TreeArc& arc : tree.arcs) {
    const bool crosses = topology.node(topology.node_of(arc.from)).host !=
                         topology.node(topology.node_of(arc.to)).host;
    most = std::max(most, hops[arc.to] = hops.at(arc.from) + (crosses ? 1 : 0));
  }
  return most;
}

std::map<Rank, std::int64_t> units_by_root(const Forest& forest) {
  std::map<Rank, std::int64_t> units;
  for (const Tree& tree : forest.trees) {
    units[tree.root] += tree.units;
  }
  return units;
}

TEST_CASE("trees between unlike hosts become trees of ranks with the joint optimum") {
  if (!topology::LinearProgram::is_available()) {
    RACKRAIL_SKIP("no solver for linear programs in this build");
  }
  for (const Topology& topology : {test::racks_of_two_kinds(), test::rails_with_lost_cable()}) {
    INFO(topology.rank_count());
    const auto optimum =
        static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second());
    const auto all = host_forests(topology);
    REQUIRE(!all.empty());
    for (const AllReduceForests& forests : all) {
      CHECK(static_cast<double>(forests.algbw.bytes_per_second()) >= 0.97 * optimum);
      CHECK(units_by_root(forests.reduction) == units_by_root(forests.broadcast));
      for (const Forest* half : {&forests.reduction, &forests.broadcast}) {
        for (const Tree& tree : half->trees) {
          CHECK(tree.arcs.size() + 1 == topology.rank_count());
          CHECK(hops_between_hosts(tree, topology) <= 3);
          CHECK(depth_of(tree) <= 7);
        }
      }
      topology::Router router(topology);
      const auto graph = all_reduce_along(forests.reduction, forests.broadcast,
                                          {.topology = topology, .router = router, .codecs = {}}, 4,
                                          Pace::kRatedTurns);
      CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
      CHECK(graph.has_rates());
    }
  }
}

TEST_CASE("there are none where hosts have one rank, or there are few hosts, or many of either") {
  CHECK(host_forests(test::uneven_star()).empty());
  CHECK(host_forests(test::grid(3, 3, false)).empty());
  CHECK(host_forests(test::boxes(2, 2)).empty());
  CHECK(host_forests(test::boxes_with_nics({17, {25, 25}}, 2)).empty());
  CHECK(host_forests(test::boxes(9, 2)).empty());  // 72 ranks
}

}  // namespace
}  // namespace rackrail::planner::host_trees_test
