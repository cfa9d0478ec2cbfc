// All-reduces over racks that cross between them on other lines: right, as fast as the optimum by
// their links, and only where lines are narrow.
#include "planner/schedules/crossed_racks.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/codec.hpp"
#include "plan/verifier.hpp"
#include "planner/collective_form.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/forms.hpp"
#include "tests/support/graphs.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::crossed_racks_test {
namespace {

using topology::Topology;

std::vector<CollectiveForm> forms_of(const Topology& topology, topology::Router& router,
                                     std::size_t most_rounds = 256,
                                     std::size_t most_transfers = 1'000'000,
                                     const plan::Codec& codec = {}, bool is_of_one_size = true) {
  return crossed_rack_forms({.topology = topology,
                             .router = router,
                             .codecs = {codec, codec},
                             .most_rounds = most_rounds,
                             .most_transfers = most_transfers,
                             .is_of_one_size = is_of_one_size});
}

/// Three racks of two boxes of 4 GPUs on four leaves, under as many spines as cables; two leaves,
/// of different racks, have lost one.
Topology three_racks() {
  const std::vector<std::vector<int>> boxes(2, std::vector<int>(4, 25));
  const std::vector<std::vector<int>> whole(4, {25, 25});
  auto one = whole;
  one[1][1] = 0;
  auto other = whole;
  other[2][0] = 0;
  return test::racks_of_boxes({{boxes, one}, {boxes, whole}, {boxes, other}});
}

/// A rack of three boxes and one of two.
Topology unlike_racks() {
  std::vector<std::vector<int>> boxes(3, std::vector<int>(4, 25));
  std::vector<std::vector<int>> uplinks(4, {25, 25});
  const std::vector<std::vector<int>> whole = uplinks;
  uplinks[3][0] = 0;
  return test::racks_of_boxes({{boxes, uplinks}, {{boxes[0], boxes[1]}, whole}});
}

TEST_CASE("all-reduces that cross between racks on other lines are right") {
  if (!test::has_solver()) return;
  for (const Topology& topology : {test::rails_with_lost_cable(), three_racks(), unlike_racks()}) {
    INFO(topology.rank_count() << " ranks");
    topology::Router router(topology);
    const auto forms = forms_of(topology, router);
    REQUIRE(!forms.empty());
    for (const CollectiveForm& form : forms) {
      test::check_known_before_made(form, topology);
    }
  }
}

TEST_CASE("with a lost cable links carry as little as in the optimum") {
  if (!test::has_solver()) return;
  const Topology topology = test::rails_with_lost_cable();
  topology::Router router(topology);
  const auto forms = forms_of(topology, router);
  REQUIRE(!forms.empty());
  // 32 adapters of 25 GB/s, and three boxes of four get and give each byte once. On lines alone,
  // whatever their shares, 1.08 times as long.
  const double rate = 4 / plan::alpha_beta(forms.back().graph(), topology).seconds_per_element;
  CHECK(rate >= 0.99 * 32 * 25e9 / 6);
  CHECK(rate <= 32 * 25e9 / 6 * (1 + 1e-6));
}

TEST_CASE("the same all-reduce over racks each time") {
  if (!test::has_solver()) return;
  const Topology topology = test::rails_with_lost_cable();
  topology::Router router(topology);
  topology::Router again(topology);
  const auto one = forms_of(topology, router);
  const auto other = forms_of(topology, again);
  REQUIRE(one.size() == other.size());
  for (std::size_t form = 0; form < one.size(); ++form) {
    test::check_same_graph(one[form].graph(), other[form].graph());
  }
}

TEST_CASE("all-reduces over racks are in as many rounds as the request allows") {
  if (!test::has_solver()) return;
  const Topology topology = test::rails_with_lost_cable();
  topology::Router router(topology);
  const auto all = forms_of(topology, router);
  REQUIRE(all.size() >= 3);
  CHECK(forms_of(topology, router, 23).empty());
  CHECK(forms_of(topology, router, 48).size() == 2);
  const auto second = static_cast<std::size_t>(all[1].shape().transfers);
  CHECK(forms_of(topology, router, 256, second).size() == 2);
  CHECK(forms_of(topology, router, 256, second - 1).size() == 1);
}

TEST_CASE("nothing crosses on other lines where none is narrow, or boxes are unlike") {
  for (const Topology& topology :
       {test::boxes(4, 2), test::rail_racks({}), test::racks_of_two_kinds(), test::uneven_star(),
        test::old_and_new_boxes(), test::two_racks()}) {
    INFO(topology.rank_count() << " ranks");
    topology::Router router(topology);
    CHECK(forms_of(topology, router).empty());
  }
  const Topology topology = test::rails_with_lost_cable();
  topology::Router router(topology);
  CHECK(forms_of(topology, router, 256, 1'000'000, plan::parse_codec("fp16")).empty());
  CHECK(forms_of(topology, router, 256, 1'000'000, {}, false).empty());
}

}  // namespace
}  // namespace rackrail::planner::crossed_racks_test
