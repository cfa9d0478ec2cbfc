// Rings of groups of which some are slow: right, as fast as closed forms say, and only where there
// are slow ones.
#include "planner/schedules/uneven_rings.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "planner/schedules/uneven_lines.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/forms.hpp"

namespace rackrail::planner::uneven_rings_test {
namespace {

using topology::Topology;

std::vector<CollectiveForm> forms_of(const Topology& topology, topology::Router& router) {
  return uneven_ring_forms({.topology = topology, .router = router, .codecs = {}});
}

TEST_CASE("rings past slow groups are right, and known before they are made") {
  if (!test::has_solver()) return;
  const std::vector<int> whole(4, 25);
  const Topology cases[] = {
      test::boxes_with_slow_nics(3, {{0, 3, 5}}),
      test::boxes_with_slow_nics(6, {{2, 0, 10}, {2, 3, 5}}),
      test::boxes_with_slow_nics(7, {{1, 1, 12}, {4, 1, 5}}),
      test::boxes_with_nics({whole, whole, {10, 10, 10, 12}, whole, whole}, 1),
      test::boxes_with_nics({{25, 25}, {25, 25}, {25, 25, 25, 5}, {25, 25}, {25, 25}}, 1),
  };
  for (const Topology& topology : cases) {
    INFO(topology.rank_count() << " ranks");
    topology::Router router(topology);
    const auto forms = forms_of(topology, router);
    REQUIRE(forms.size() > 2);
    for (const CollectiveForm& form : forms) {
      test::check_known_before_made(form, topology, false);
    }
  }
}

TEST_CASE("a slow group is a leaf of its line, which has less of the buffer") {
  if (!test::has_solver()) return;
  const Topology topology = test::boxes_with_slow_nics(6, {{4, 2, 10}});
  topology::Router router(topology);
  const auto found = uneven_lines(topology, router);
  REQUIRE(found);
  REQUIRE(found->lines.size() == 4);
  for (const LineTrees& line : found->lines) {
    CHECK(line.has_leaves == (line.line == 2));
    CHECK(line.trees.size() == (line.has_leaves ? 5 : 12));
  }
  // 10 GB/s by the leaf's link, 11 % less as waves have it, beside 25 * 6 / 10 on each ring.
  CHECK(found->lines[2].share / found->lines[0].share == Approx(10 / 1.105 / 15).epsilon(1e-3));
  // Rings in equal shares are as slow as the slowest: 10 * 6 / 10 on each of 4 lines.
  const double rate =
      4 /
      plan::alpha_beta(forms_of(topology, router).front().graph(), topology).seconds_per_element;
  CHECK(rate == Approx(15e9 / found->lines[0].share).epsilon(1e-3));
  CHECK(rate > 2 * 24e9);
}

TEST_CASE("the same rings each time") {
  if (!test::has_solver()) return;
  const Topology topology = test::boxes_with_slow_nics(5, {{0, 1, 12}});
  test::check_same_each_time(topology, forms_of);
}

TEST_CASE("no rings past groups where none is slower than others on a line") {
  for (const Topology& topology : {test::boxes(3, 8), test::boxes(1, 8), test::grid(4, 4, true),
                                   test::boxes_with_nics({{25, 10}, {25, 10}, {25, 10}}, 2)}) {
    topology::Router router(topology);
    CHECK(forms_of(topology, router).empty());
  }
}

}  // namespace
}  // namespace rackrail::planner::uneven_rings_test
