// All-reduces between two groups round slow pairs: right, as fast as closed forms say, and only
// where there are slow pairs.
#include "planner/schedules/relayed_exchange.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/codec.hpp"
#include "planner/collective_form.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/forms.hpp"
#include "tests/support/graphs.hpp"

namespace rackrail::planner::relayed_exchange_test {
namespace {

using topology::Topology;

template <typename... Limits>
std::vector<CollectiveForm> forms_of(const Topology& topology, topology::Router& router,
                                     const Limits&... limits) {
  return relayed_exchange_forms(test::request_of(topology, router, limits...));
}

Topology dead_nic() {
  return test::boxes_with_nics({{0, 25, 25, 25, 25, 25, 25, 25}, std::vector<int>(8, 25)}, 2);
}

TEST_CASE("exchanges round slow pairs are right, and known before they are made") {
  if (!test::has_solver()) return;
  const Topology cases[] = {
      dead_nic(),
      test::boxes_with_nics({{0, 25, 25}, {25, 0, 25}}, 1),
      test::boxes_with_nics({{10, 25, 25, 25}, {25, 25, 25, 25}}, 4),
      test::boxes_with_nics({{25, 0, 25, 0}, {25, 25}}, 1),
  };
  const std::string codec = GENERATE("none", "fp16");
  for (const Topology& topology : cases) {
    INFO(topology.rank_count() << " ranks, " << codec);
    topology::Router router(topology);
    const auto forms = forms_of(topology, router, plan::parse_codec(codec));
    REQUIRE(forms.size() > 2);
    for (const CollectiveForm& form : forms) {
      test::check_known_before_made(form, topology);
    }
  }
}

TEST_CASE("a GPU without a NIC adds up as much as the others") {
  if (!test::has_solver()) return;
  const Topology topology = dead_nic();
  topology::Router router(topology);
  const auto forms = forms_of(topology, router);
  REQUIRE(!forms.empty());
  const plan::TransferGraph& graph = forms.back().graph();
  // 28 of 30 arcs are inside the boxes, over 16 links of 300 GB/s: if the GPU left its additions to
  // the other seven, theirs would carry 13 / 7 instead of 14 / 8.
  const double rate = 4 / plan::alpha_beta(graph, topology).seconds_per_element;
  CHECK(rate == Approx(300e9 * 8 / 14).epsilon(5e-3));
  // And nobody sends over links that are not there, or through another GPU.
  for (const plan::Transfer& transfer : graph.transfers()) {
    const auto& route = graph.routes()[transfer.route.index()];
    for (std::size_t i = 1; i < route.size(); ++i) {
      REQUIRE(!topology.rank_of(topology.link(route[i]).from));
    }
  }
}

TEST_CASE("the same exchange each time") {
  if (!test::has_solver()) return;
  const Topology topology = dead_nic();
  test::check_same_each_time(
      topology, [](const Topology& of, topology::Router& by) { return forms_of(of, by); });
}

TEST_CASE("exchanges round slow pairs are in as many pieces as the request allows") {
  if (!test::has_solver()) return;
  const Topology topology = test::boxes_with_nics({{10, 25, 25, 25}, {25, 25, 25, 25}}, 4);
  topology::Router router(topology);
  const auto all = forms_of(topology, router);
  REQUIRE(all.size() == 6);  // 16, 32, 64, 96, 128 and 192
  CHECK(forms_of(topology, router, plan::Codec{}, 64U).size() == 3);
  CHECK(forms_of(topology, router, plan::Codec{}, 63U).size() == 2);
  CHECK(forms_of(topology, router, plan::Codec{}, 15U).empty());
  const auto third = static_cast<std::size_t>(all[2].shape().transfers);
  CHECK(forms_of(topology, router, plan::Codec{}, 256U, third).size() == 3);
  CHECK(forms_of(topology, router, plan::Codec{}, 256U, third - 1).size() == 2);
}

TEST_CASE("no exchange round others where no pair is slower, or groups are not two") {
  for (const Topology& topology :
       {test::boxes(2, 8), test::boxes(1, 8), test::grid(4, 4, true),
        test::boxes_with_nics({{25, 0}, {25, 25}, {25, 25}}, 2),
        test::boxes_with_nics({{10, 10, 10, 10}, {25, 25, 25, 25}}, 4)}) {
    topology::Router router(topology);
    CHECK(forms_of(topology, router).empty());
  }
}

}  // namespace
}  // namespace rackrail::planner::relayed_exchange_test
