// Pairs of trees that settle: against closed forms of the optimum and the exact one, and what they
// are held to.
#include "planner/packing/settled_pairs.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/packing/joint_forest.hpp"
#include "planner/packing/lanes.hpp"
#include "planner/pipeline/forest_schedule.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "tests/support/clusters.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"
#include "topology/remove.hpp"

namespace rackrail::planner::settled_pairs_test {
namespace {

using topology::Topology;

/// Bytes per second of the buffer, added up link by link.
double rate_of(const AllReduceForests& forests, const Topology& topology) {
  std::vector<double> seconds(topology.link_count());
  for (const Forest* forest : {&forests.reduction, &forests.broadcast}) {
    double whole = 0;
    for (const Tree& tree : forest->trees) whole += static_cast<double>(tree.units);
    for (const Tree& tree : forest->trees) {
      for (const TreeArc& arc : tree.arcs) {
        for (const LinkId link : forest->routes[arc.route]) {
          seconds[link.index()] +=
              static_cast<double>(tree.units) / whole /
              static_cast<double>(topology.link(link).bandwidth.bytes_per_second());
        }
      }
    }
  }
  return 1 / *std::max_element(seconds.begin(), seconds.end());
}

/// Trees that leave out or repeat a rank, or whose routes do not lead from one end to the other.
void check_trees(const AllReduceForests& forests, const Topology& topology) {
  int wrong = 0;
  for (const bool is_reduction : {false, true}) {
    const Forest& forest = is_reduction ? forests.reduction : forests.broadcast;
    for (const Tree& tree : forest.trees) {
      std::set<Rank> has{tree.root};
      for (const TreeArc& arc : tree.arcs) {
        wrong += has.contains(arc.from) && has.insert(arc.to).second ? 0 : 1;
        NodeId at = topology.node_of(is_reduction ? arc.to : arc.from);
        for (const LinkId link : forest.routes[arc.route]) {
          wrong += topology.link(link).from == at ? 0 : 1;
          at = topology.link(link).to;
        }
        wrong += at == topology.node_of(is_reduction ? arc.from : arc.to) ? 0 : 1;
      }
      wrong += has.size() == topology.rank_count() ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  REQUIRE(forests.reduction.trees.size() == forests.broadcast.trees.size());
  for (std::size_t t = 0; t < forests.broadcast.trees.size(); ++t) {
    CHECK(forests.reduction.trees[t].root == forests.broadcast.trees[t].root);
    CHECK(forests.reduction.trees[t].units == forests.broadcast.trees[t].units);
  }
}

/// A torus of 9 by 9, one of whose cables has two fifths of the rate in one direction.
Topology torus_with_slow_direction() {
  Topology torus = test::grid(9, 9, true);
  torus.set_link_rate(LinkId(40), Bandwidth(400'000'000), torus.link(LinkId(40)).latency);
  return torus;
}

Topology mesh_with_broken_cable() {
  const LinkId cut[] = {LinkId(120), LinkId(121)};  // both directions
  return topology::without(test::grid(8, 12, false), {}, cut);
}

/// Nine boxes on rails, one GPU of which has half a NIC.
Topology rails_with_slow_nic() {
  std::vector<std::vector<int>> nics(9, std::vector<int>(8, 25));
  nics[0][0] = 12;
  return test::boxes_with_nics(nics, 8);
}

/// Racks of 20 hosts with NICs of 5, 10 and 25 under unlike uplinks.
Topology unlike_racks() {
  std::vector<std::vector<int>> nics(4);
  for (auto& rack : nics) {
    for (int h = 0; h < 20; ++h) rack.push_back(h % 4 == 0 ? 25 : h % 3 == 0 ? 5 : 10);
  }
  return test::racks(nics, {20, 35, 50, 65});
}

TEST_CASE("above 64 ranks pairs that settle reach 98 % of the joint optimum, in shallow trees") {
  struct Case {
    std::string name;
    Topology topology;
    double optimum;  // GB/s, as found by the linear program, or where ranks alone bind: the links'
                     // bandwidths over twice the ranks but one
  };
  const Case cases[] = {
      {"mesh", test::grid(9, 9, false), 288.0 / 160},
      {"mesh of 256", test::grid(16, 16, false), 960.0 / 510},
      {"mesh with a broken cable", mesh_with_broken_cable(), 342.0 / 190},
      {"torus with a slow direction", torus_with_slow_direction(), 0},
      {"rails with a slow NIC", rails_with_slow_nic(), 0},
      {"unlike racks", unlike_racks(), 5},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const bool is_known = c.optimum > 0;
    if (!is_known && !topology::LinearProgram::is_available()) {
      WARN(c.name << " skipped: built without a solver for linear programs");
      continue;
    }
    const double optimum =
        is_known ? c.optimum * 1e9
                 : static_cast<double>(
                       topology::joint_allreduce_bound(c.topology).algbw.bytes_per_second());
    const AllReduceForests forests = make_allreduce_forests(c.topology);
    check_trees(forests, c.topology);
    const double rate = rate_of(forests, c.topology);
    CHECK(rate <= optimum * (1 + 1e-6));
    CHECK(rate >= 0.98 * optimum);
    CHECK(static_cast<double>(forests.algbw.bytes_per_second()) == Approx(rate).epsilon(1e-6));
    const std::size_t most = 2 * test::diameter_of(c.topology) + 4;
    CHECK(depth_of(forests.broadcast) <= most);
    CHECK(depth_of(forests.reduction) <= most);
  }
}

TEST_CASE("the same pairs settle each time, and their schedules are right") {
  const Topology mesh = test::grid(9, 9, false);
  const SettledOptions options{.pairs = 64, .bound = 1.8e9, .good_enough = 0.99};
  const auto settled = settled_pairs(mesh, options);
  REQUIRE(settled);
  const AllReduceForests* forests = &settled->forests;
  CHECK(settled_pairs(mesh, options).value().forests == *forests);
  topology::Router router(mesh);
  for (const Pace pace : {Pace::kStages, Pace::kEvenTurns}) {
    const plan::TransferGraph graph =
        all_reduce_along(forests->reduction, forests->broadcast, {mesh, router, {}}, 2, pace);
    CHECK(plan::verify(graph, &mesh).ok());
  }
}

TEST_CASE("equal shares where they are enough, unequal ones where links carry few pairs") {
  const Topology mesh = test::grid(5, 5, false);
  const double bound = 80e9 / 48;  // 3 of 5 trees use each link
  const auto units_of = [&](double good_enough) {
    std::set<std::int64_t> units;
    const AllReduceForests forests =
        settled_pairs(mesh, {.pairs = 12, .bound = bound, .good_enough = good_enough})
            .value()
            .forests;
    for (const Tree& tree : forests.broadcast.trees) units.insert(tree.units);
    return std::pair(units, rate_of(forests, mesh) / bound);
  };
  const auto [equal, enough] = units_of(0.9);
  CHECK(equal == std::set<std::int64_t>{1});
  CHECK(enough >= 0.9 * (1 - 1e-9));
  if (topology::LinearProgram::is_available()) {
    const auto [unequal, more] = units_of(0.99);
    CHECK(unequal.size() > 1);
    CHECK(more > enough);
  }
}

TEST_CASE("nothing settles where halves are near to the optimum, or ranks are few") {
  CHECK(settled_forests(test::grid(9, 9, true)).empty());
  CHECK(settled_forests(test::boxes(9, 8)).empty());
  CHECK(settled_forests(test::grid(8, 8, false)).empty());
}

TEST_CASE("of one size, many ranks have more pairs and graphs as large as may be", "[slow]") {
  const Topology mesh = test::grid(16, 16, false);
  const auto optimum =
      static_cast<double>(topology::joint_allreduce_bound(mesh).algbw.bytes_per_second());
  constexpr std::int64_t kElements = 1 << 28;
  topology::Router router(mesh);
  // The finest form: its transfers, and its bound over the optimum.
  const auto finest = [&](bool is_of_one_size) {
    const auto forms = collective_forms(schedule_family("forest"), plan::Collective::kAllReduce,
                                        mesh, router, {}, {.is_of_one_size = is_of_one_size});
    const FormShape& shape = forms.back().shape();
    return std::pair(shape.transfers,
                     shape.bound.value().at_least(kElements).seconds() * optimum / (4 * kElements));
  };
  const auto [transfers, over] = finest(true);
  CHECK(transfers > 3'500'000);
  CHECK(transfers <= static_cast<std::int64_t>(kMostPlannedTransfers));
  CHECK(over < 1.01);
  CHECK(finest(false).first <= 200'000);  // of a table
}

TEST_CASE("ranks that do not reach each other have no pairs") {
  Topology two("two");
  for (const char* name : {"a", "b"}) two.add_rank(two.add_node({.name = name}));
  CHECK_FALSE(settled_pairs(two, {.pairs = 1, .bound = 1e9}));
}

TEST_CASE("lanes: all neighbours of a mesh, few of a switch's many") {
  const Topology mesh = test::grid(9, 9, false);
  RankLanes of_mesh(mesh, std::vector<double>(mesh.link_count(), 1));
  CHECK(of_mesh.lanes().size() == mesh.link_count());
  CHECK(of_mesh.distances(0, false)[80] == 16);
  CHECK(of_mesh.central_ranks(1) == std::vector<std::uint32_t>{40});
  CHECK(of_mesh.central_ranks(2).size() == 81);
  // Of 40 hosts in a ring those 1, 2, 4, 8 and 16 further and before.
  const Topology hosts = test::hosts_with_nics(40, {25});
  RankLanes of_hosts(hosts, std::vector<double>(hosts.link_count(), 1));
  CHECK(of_hosts.lanes().size() == 40 * 10);
  const auto& distance = of_hosts.distances(0, true);
  CHECK(*std::max_element(distance.begin(), distance.end()) <= 3);
}

}  // namespace
}  // namespace rackrail::planner::settled_pairs_test
