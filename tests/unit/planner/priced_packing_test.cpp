// Trees by prices against rates that are known, and what they leave free.
#include "planner/packing/priced_packing.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "planner/packing/colours.hpp"
#include "planner/packing/forest_building.hpp"
#include "tests/support/clusters.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::priced_packing_test {
namespace {

using topology::LinearProgram;
using topology::Topology;

/// By link, the share of its bandwidth that is taken when the buffer is reduced at this rate.
std::vector<double> shares_of(const AllReduceForests& forests, const Topology& topology,
                              double rate) {
  std::vector<double> shares(topology.link_count());
  for (const Forest* forest : {&forests.reduction, &forests.broadcast}) {
    const auto whole = std::accumulate(
        forest->trees.begin(), forest->trees.end(), 0.0,
        [](double sum, const Tree& tree) { return sum + static_cast<double>(tree.units); });
    const std::vector<std::int64_t> loads = loads_of(*forest, topology.link_count());
    for (std::size_t l = 0; l < loads.size(); ++l) {
      shares[l] += static_cast<double>(loads[l]) / whole * rate /
                   static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second());
    }
  }
  return shares;
}

double optimum_of(const Topology& topology) {
  return static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second());
}

TEST_CASE("a program's prices are what its optimum loses") {
  if (!LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  // Least 3x + 2y with x + y >= 4 and x >= 1: (1, 3) costs 9. A unit more of the first row costs 2,
  // of the second 1; a third row that does not bind costs nothing.
  LinearProgram program;
  const int x = program.add_variable(100, -3);
  const int y = program.add_variable(100, -2);
  program.add_row({{x, 1}, {y, 1}}, 4);
  program.add_row({{x, 1}}, 1);
  program.add_row({{y, 1}}, 2);
  CHECK(program.maximise().value() == Approx(-9));
  CHECK(program.price(0) == Approx(2));
  CHECK(program.price(1) == Approx(1));
  CHECK(program.price(2) == Approx(0).margin(1e-9));
}

TEST_CASE("priced trees span, and carry nearly the optimum of any cluster") {
  if (!LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  const auto [topology, name] =
      GENERATE(std::pair(test::nics_by_host(), "NICs by host"),
               std::pair(test::nics_by_gpu(), "NICs by GPU"),
               std::pair(test::missing_nics(), "missing NICs"),
               std::pair(test::clos({1, 4, 3}, 2), "Clos"), std::pair(test::cube_mesh(), "cubes"));
  CAPTURE(name);
  const auto forests = pack_by_prices(topology, 0.995);
  REQUIRE(forests);
  // The most loaded link is full at 99.5 % of the optimum, but for trees too thin to be kept.
  const auto shares = shares_of(*forests, topology, optimum_of(topology));
  const double fullest = *std::max_element(shares.begin(), shares.end());
  CHECK(fullest >= 1 - 1e-3);
  CHECK(fullest <= 1.01);
  for (const Forest* forest : {&forests->reduction, &forests->broadcast}) {
    for (const Tree& tree : forest->trees) {
      std::set<Rank> has{tree.root};
      for (const TreeArc& arc : tree.arcs) {
        CHECK(has.contains(arc.from));
        CHECK(has.insert(arc.to).second);
      }
      CHECK(has.size() == topology.rank_count());
    }
  }
}

TEST_CASE("ranks are unlike by what lies behind their own links, too") {
  CHECK_FALSE(are_ranks_unlike(test::grid(3, 3, true)));
  CHECK_FALSE(are_ranks_unlike(test::clos({4, 4}, 2)));
  CHECK(are_ranks_unlike(test::uneven_star()));
  CHECK(are_ranks_unlike(test::clos({2, 4}, 2)));  // every host has one link of 10
}

}  // namespace
}  // namespace rackrail::planner::priced_packing_test
