// Rings of groups within rings: right on every grid, as much over links as one ring, in fewer hops.
#include "planner/algorithms/group_grids.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/alpha_beta.hpp"
#include "plan/verifier.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/form_checks.hpp"
#include "tests/support/forms.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::group_grids_test {
namespace {

using plan::Collective;
using topology::Topology;

constexpr Collective kAll[] = {Collective::kAllGather, Collective::kReduceScatter,
                               Collective::kAllReduce};

TEST_CASE("grids of groups are right, whatever their sides, pieces and ways") {
  struct Case {
    Topology topology;
    GridSides sides;
  };
  for (const auto& [topology, sides] :
       {Case{test::boxes(4, 8), {2, 2}}, Case{test::boxes(6, 2), {3, 2}},
        Case{test::boxes(6, 2), {2, 3}}, Case{test::boxes(8, 8), {2, 2, 2}},
        Case{test::boxes(3, 2), {3}}, Case{test::clos({1, 4, 7, 2}, 2), {2, 2}},
        Case{test::pcie_hosts(12), {3, 2, 2}}}) {
    topology::Router router(topology);
    const ScheduleRequest request{topology, router, {}};
    REQUIRE_FALSE(refuse_group_rings(topology, request.codecs));
    for (const Collective what : kAll) {
      for (const std::size_t pieces : {1U, 2U, 3U}) {
        for (const RingWays ways : {RingWays::kOne, RingWays::kBoth}) {
          INFO(topology.name() << ", " << static_cast<int>(what) << " in " << pieces);
          const auto graph = make_group_grid(what, request, sides, pieces, ways);
          CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
          CHECK(graph.transfers().size() == group_grid_transfers(what, topology, sides, pieces));
        }
      }
    }
  }
}

TEST_CASE("a grid of groups sends as much as one ring, in fewer transfers one after the other") {
  const Topology topology = test::boxes(16, 8);
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, {}};
  for (const Collective what : kAll) {
    const auto ring = make_group_rings(what, request, 1);
    const auto grid = make_group_grid(what, request, {4, 4}, 1);
    CHECK(plan::alpha_beta(grid, topology).seconds_per_element ==
          Approx(plan::alpha_beta(ring, topology).seconds_per_element));
    // 6 hops instead of 15, and as many again of an all-reduce.
    const std::size_t fewer = what == Collective::kAllReduce ? 18 : 9;
    CHECK(plan::verify(grid, nullptr).depth + fewer <= plan::verify(ring, nullptr).depth);
    CHECK(3 * grid.transfers().size() < 2 * ring.transfers().size());
  }
}

TEST_CASE("sides of grids have few hops, and are within racks") {
  CHECK(group_grid_sides(test::boxes(16, 8)) == std::vector<GridSides>{{4, 4}, {2, 8}, {2, 2, 4}});
  CHECK(group_grid_sides(test::boxes(15, 8)) == std::vector<GridSides>{{3, 5}});
  CHECK(group_grid_sides(test::h100_128x8()) ==
        std::vector<GridSides>{{8, 16}, {4, 32}, {4, 4, 8}});
  // Rings of six would leave racks of four.
  const Topology racks = test::rail_racks({.racks = 6, .hosts = 4, .gpus = 4});
  CHECK(group_grid_sides(racks) == std::vector<GridSides>{{4, 6}, {2, 12}, {2, 4, 3}});
}

TEST_CASE("grids of groups along uneven lanes are right, and every rank owns as much") {
  // Boxes of which one line or two are slow, one has none, or members are on several lines.
  for (const Topology& topology : {test::boxes_with_slow_nics(6, {{0, 3, 5}}),
                                   test::boxes_with_slow_nics(6, {{2, 0, 10}, {4, 3, 5}}),
                                   test::boxes_with_slow_nics(6, {{1, 2, 0}})}) {
    topology::Router router(topology);
    const ScheduleRequest request{topology, router, {}};
    for (const Collective what : kAll) {
      const LineLanes lanes = uneven_lanes(what, request);
      REQUIRE_FALSE(lanes.empty());
      for (const GridSides& sides : {GridSides{2, 3}, GridSides{3, 2}, GridSides{6}}) {
        for (const std::size_t pieces : {1U, 2U, 3U}) {
          INFO(static_cast<int>(what) << " in " << pieces);
          const auto graph = make_group_grid(what, request, sides, pieces, RingWays::kBoth, lanes);
          CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
          CHECK(graph.transfers().size() ==
                group_grid_transfers(what, topology, sides, pieces, lanes));
          std::vector<double> owned(topology.rank_count());
          for (std::size_t chunk = 0; chunk < graph.owners().size(); ++chunk) {
            owned[graph.owners()[chunk].index()] += graph.chunk_weights()[chunk];
          }
          if (what != Collective::kAllReduce) {  // before which nobody owns anything
            const auto [least, most] = std::ranges::minmax(owned);
            CHECK(least == most);
            CHECK(least > 0);
          }
        }
      }
    }
  }
}

TEST_CASE("a grid along uneven lanes has all NICs of the box with a slow one full") {
  const Topology topology = test::rails_with_slow_nic(12, 12);
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, {}};
  const auto graph = make_group_grid(Collective::kAllGather, request, {2, 6}, 2, RingWays::kOne,
                                     uneven_lanes(Collective::kAllGather, request));
  const double bound =
      4 / static_cast<double>(topology::allgather_bound(topology).algbw.bytes_per_second());
  const double seconds = plan::alpha_beta(graph, topology).seconds_per_element;
  CHECK(seconds >= bound * (1 - 1e-9));
  CHECK(seconds <= 1.001 * bound);
}

TEST_CASE("grids are along as many lanes as there are lines, which an all-reduce does not lend") {
  const Topology topology = test::boxes_with_slow_nics(6, {{0, 3, 5}});
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, {}};
  LineLanes lanes = uneven_lanes(Collective::kAllGather, request);
  CHECK_THROWS_AS(
      make_group_grid(Collective::kAllReduce, request, {2, 3}, 1, RingWays::kOne, lanes),
      PlanError);
  lanes.pop_back();
  CHECK_THROWS_AS(
      make_group_grid(Collective::kAllGather, request, {2, 3}, 1, RingWays::kOne, lanes),
      PlanError);
}

TEST_CASE("grids of two sides have ever shorter inner rings") {
  CHECK(two_sides(test::boxes(16, 8)) == std::vector<GridSides>{{4, 4}, {2, 8}});
  CHECK(two_sides(test::boxes(36, 2)) == std::vector<GridSides>{{6, 6}, {3, 12}, {2, 18}});
  CHECK(two_sides(test::boxes(128, 8)) == std::vector<GridSides>{{8, 16}, {4, 32}, {2, 64}});
  CHECK(two_sides(test::boxes(11, 8)).empty());
  CHECK(two_sides(test::boxes(6, 8)).empty());
}

TEST_CASE("a prime number of groups, or few, have no grid") {
  CHECK(group_grid_sides(test::boxes(11, 8)).empty());
  CHECK(group_grid_sides(test::boxes(4, 8)).empty());
  const Topology topology = test::boxes(11, 8);
  topology::Router router(topology);
  CHECK(group_grid_forms(
            Collective::kAllGather,
            {.topology = topology, .router = router, .codecs = {}, .is_of_one_size = true})
            .empty());
}

TEST_CASE("what grids of groups are like is known before they are made") {
  const Topology topology = test::boxes(12, 4);
  topology::Router router(topology);
  const ScheduleRequest request{.topology = topology,
                                .router = router,
                                .codecs = {},
                                .most_rounds = 4,
                                .is_of_one_size = true};
  for (const Collective what : kAll) {
    const auto forms = group_grid_forms(what, request);
    REQUIRE_FALSE(forms.empty());
    for (const CollectiveForm& form : forms) {
      check_shape(form, topology);
    }
  }
  // Before them along uneven lanes, if there are any, of two sides. What is lent is in one part
  // however many pieces there are.
  for (const auto& slow_nic : {test::SlowNic{0, 0, 10}, test::SlowNic{0, 0, 5}}) {
    const Topology slow = test::boxes_with_slow_nics(12, {slow_nic});
    topology::Router slow_router(slow);
    const ScheduleRequest slow_request{.topology = slow,
                                       .router = slow_router,
                                       .codecs = {},
                                       .most_rounds = 16,
                                       .is_of_one_size = true};
    for (const Collective what : kAll) {
      const auto forms = group_grid_forms(what, slow_request);
      REQUIRE(forms.size() > group_grid_forms(what, request).size());
      for (const CollectiveForm& form : forms) {
        check_shape(form, slow);
      }
    }
  }
  // Not in tables of many sizes, and not with codecs, which would round at every stage.
  CHECK(group_grid_forms(Collective::kAllGather, {topology, router, {}}).empty());
  const plan::Codec fp16 = plan::parse_codec("fp16");
  ScheduleRequest rounded = request;
  rounded.codecs = {fp16, fp16};
  CHECK(group_grid_forms(Collective::kAllGather, rounded).empty());
}

}  // namespace
}  // namespace rackrail::planner::group_grids_test
