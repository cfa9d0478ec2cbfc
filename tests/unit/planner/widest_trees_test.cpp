// Trees along the widest ways: right, the widest first, and whole where ways do not meet.
#include "planner/packing/widest_trees.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/packing/forest.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::widest_trees_test {
namespace {

using topology::Topology;

/// Two ranks, joined over as many switches by ways of these units each way.
Topology ways(const std::vector<int>& units) { return test::hosts_with_nics(2, units); }

TEST_CASE("between two ranks each way is a tree, the widest first") {
  const Topology topology = ways({2, 6, 1, 6});
  for (const bool is_reversed : {false, true}) {
    const Forest forest = widest_trees(topology, 12, is_reversed);
    REQUIRE(forest.trees.size() == 8);
    std::set<LinkId> used;
    std::vector<std::int64_t> widths;
    for (const Tree& tree : forest.trees) {
      REQUIRE(tree.arcs.size() == 1);
      const auto& route = forest.routes[tree.arcs[0].route];
      CHECK(route.size() == 2);
      CHECK(topology.link(route.front()).from ==
            topology.node_of(is_reversed ? tree.arcs[0].to : tree.root));
      CHECK(topology.link(route.back()).to ==
            topology.node_of(is_reversed ? tree.root : tree.arcs[0].to));
      used.insert(route.begin(), route.end());
      widths.push_back(topology.link(route.front()).bandwidth.bytes_per_second() / 1'000'000'000);
    }
    CHECK(used.size() == topology.link_count());
    CHECK(widths == std::vector<std::int64_t>{6, 6, 2, 1, 6, 6, 2, 1});
  }
  CHECK(widest_trees(topology, 2).trees.size() == 4);
}

TEST_CASE("every tree reaches all ranks, past switches alone") {
  for (const Topology& topology : {test::nics_by_gpu(), test::cube_mesh(), test::grid(3, 3, false),
                                   test::boxes(2, 2), test::clos({2, 3, 1}, 2)}) {
    INFO(topology.rank_count() << " ranks");
    for (const bool is_reversed : {false, true}) {
      Forest forest = widest_trees(topology, 1, is_reversed);
      CHECK(forest.trees.size() == topology.rank_count());
      forest.trees_per_rank = 1;  // of which problems_of() counts as many from each rank
      CHECK(problems_of(forest, topology, is_reversed) == std::vector<std::string>{});
      for (const auto& route : forest.routes) {
        for (std::size_t i = 1; i < route.size(); ++i) {
          CHECK(!topology.rank_of(topology.link(route[i]).from));
        }
      }
    }
  }
}

}  // namespace
}  // namespace rackrail::planner::widest_trees_test
