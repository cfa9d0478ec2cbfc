// Trees of switches by prices against optima that are known, and as schedules.
#include "planner/packing/switch_packing.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/in_network.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/pipeline/switch_schedule.hpp"
#include "tests/support/clusters.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::switch_packing_test {
namespace {

using topology::NodeKind;
using topology::Topology;

bool has_no_solver() {
  if (!topology::LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return true;
  }
  return false;
}

double rate(Bandwidth bandwidth) { return static_cast<double>(bandwidth.bytes_per_second()); }

TEST_CASE("trees of switches fill cables of unlike rates") {
  if (has_no_solver()) return;
  // Cables of a rack are together what a rank has, and every tree takes one of each rack.
  const Topology t = test::clos_of_unlike_spines();
  const auto packing = pack_switch_trees(t, topology::joint_allreduce_bound(t, true).algbw);
  REQUIRE(packing.has_value());
  CHECK(rate(packing->algbw) >= 0.995 * 1e10);
  CHECK(rate(packing->algbw) <= 1e10);
}

TEST_CASE("what switches have of trees is what they can carry out") {
  if (has_no_solver()) return;
  const Topology t =
      GENERATE(test::clos_of_unlike_spines(), test::clos_with_slow_cables(),
               test::able(test::boxes(2, 4), {NodeKind::kNvSwitch}),
               test::able(test::boxes(2, 4), {NodeKind::kNvSwitch, NodeKind::kSpine}),
               test::able(test::clos({2, 4, 6}, 2), {NodeKind::kSpine}),  // leaves pass on only
               test::able(test::uneven_star(), {NodeKind::kTor, NodeKind::kSwitch}));
  CAPTURE(t.name());
  const auto packing = pack_switch_trees(t, topology::joint_allreduce_bound(t, true).algbw);
  REQUIRE(packing.has_value());
  topology::Router router(t);
  for (const std::size_t rounds : {1, 5, 20}) {
    for (const bool has_rates : {false, true}) {
      const plan::TransferGraph graph =
          all_reduce_along(*packing, {t, router, {}}, rounds, has_rates);
      CHECK(plan::verify(graph, &t).problems == std::vector<std::string>{});
      CHECK(plan::InNetwork(graph, t).operations().size() == graph.groups().size());
      CHECK(graph.has_rates() == has_rates);
    }
  }
}

TEST_CASE("a spine adds and copies for ranks whose leaf only passes on") {
  if (has_no_solver()) return;
  // Over four NICs' worth of cable; by the ranks alone links carry 2 · 7/8 of the buffer.
  Topology t = test::clos({4, 4}, 1);
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const topology::Link& link = t.link(LinkId(l));
    if (!t.rank_of(link.from) && !t.rank_of(link.to)) {
      t.set_link_rate(LinkId(l), Bandwidth(40'000'000'000), link.latency);
    } else {
      t.set_link_rate(LinkId(l), Bandwidth(10'000'000'000), link.latency);
    }
  }
  t = test::able(std::move(t), {NodeKind::kSpine});
  const auto packing = pack_switch_trees(t, topology::joint_allreduce_bound(t, true).algbw);
  REQUIRE(packing.has_value());
  CHECK(rate(packing->algbw) >= 0.99 * rate(topology::joint_allreduce_bound(t, true).algbw));
  CHECK(rate(packing->algbw) > 1e10 / 1.75);
}

TEST_CASE("few trees have nearly what all have, and none is too thin") {
  if (has_no_solver()) return;
  const Topology t = test::clos_of_unlike_racks();
  const Bandwidth bound = topology::joint_allreduce_bound(t, true).algbw;
  const auto packing = pack_switch_trees(t, bound);
  REQUIRE(packing.has_value());
  CHECK(packing->pairs.size() <= t.link_count());
  CHECK(rate(packing->algbw) <= rate(bound));
  CHECK(rate(packing->algbw) >= 0.99 * rate(bound));
  std::int64_t all = 0;
  std::int64_t thinnest = packing->pairs.front().units;
  for (const SwitchPair& pair : packing->pairs) {
    all += pair.units;
    thinnest = std::min(thinnest, pair.units);
  }
  CHECK(thinnest * 2000 > all);
}

TEST_CASE("what is good enough ends the search") {
  if (has_no_solver()) return;
  const Topology t = test::clos_of_unlike_spines();
  const auto packing = pack_switch_trees(t, Bandwidth(1'000'000'000));
  REQUIRE(packing.has_value());
  CHECK(rate(packing->algbw) >= 0.99e9);
}

}  // namespace
}  // namespace rackrail::planner::switch_packing_test
