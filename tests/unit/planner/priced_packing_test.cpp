// Trees by prices against rates that are known, and what they leave free.
#include "planner/packing/priced_packing.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "planner/packing/colours.hpp"
#include "planner/packing/forest_building.hpp"
#include "planner/packing/tiered_trees.hpp"
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
  const auto forests = pack_by_prices(topology, {.good_enough = 0.995});
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

TEST_CASE("links that need not be full are spared at no cost") {
  if (!LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  // The host of the slowest NICs binds, 12 each way; the four other hosts have much more.
  const Topology topology = test::nics_by_host();
  const auto forests = pack_by_prices(topology, {.good_enough = 0.995, .spares_links = true});
  REQUIRE(forests);
  const auto shares = shares_of(*forests, topology, optimum_of(topology));
  CHECK(*std::max_element(shares.begin(), shares.end()) <= 1.01);
  const auto full =
      std::count_if(shares.begin(), shares.end(), [](double share) { return share > 0.9; });
  CHECK(full == 8);  // its four NICs, in and out
}

TEST_CASE("tiered trees enter each host once and are cheapest among those") {
  const Topology topology = test::boxes_with_nics({{1, 1, 1}, {1, 1, 1}, {1, 1}}, 1);
  const TieredTrees tiers(topology);
  CHECK(tiers.has_tiers());
  CHECK_FALSE(TieredTrees(test::grid(3, 3, false)).has_tiers());
  const std::vector<std::vector<std::uint32_t>> hosts{{0, 1, 2}, {3, 4, 5}, {6, 7}};
  const auto host_of = [](std::uint32_t rank) { return rank < 3 ? 0U : rank < 6 ? 1U : 2U; };
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    double price[8][8];
    std::vector<PricedArc> ways;
    for (std::uint32_t a = 0; a < 8; ++a) {
      for (std::uint32_t b = 0; b < 8; ++b) {
        if (a == b) continue;
        price[a][b] = static_cast<double>(1 + random() % 20);
        ways.push_back({a, b, price[a][b]});
      }
    }
    // By hand: what a host costs from each rank, then every order of the hosts.
    const auto host_price = [&](std::uint32_t at) {
      double least = std::numeric_limits<double>::infinity();
      for (const std::uint32_t hub : hosts[host_of(at)]) {
        double sum = hub == at ? 0 : price[at][hub];
        for (const std::uint32_t to : hosts[host_of(at)]) {
          sum += to == at || to == hub ? 0 : price[hub][to];
        }
        least = std::min(least, sum);
      }
      return least;
    };
    const auto between = [&](std::uint32_t from, std::uint32_t to) {
      double least = std::numeric_limits<double>::infinity();
      for (const std::uint32_t a : hosts[from]) {
        for (const std::uint32_t b : hosts[to]) {
          least = std::min(least, price[a][b] + host_price(b));
        }
      }
      return least;
    };
    const double least =
        host_price(0) + std::min({between(0, 1) + between(0, 2), between(0, 1) + between(1, 2),
                                  between(0, 2) + between(2, 1)});
    const auto arcs = tiers.cheapest(0, ways);
    REQUIRE(arcs);
    double sum = 0;
    std::set<std::uint32_t> has{0};
    for (const std::uint32_t arc : *arcs) {
      sum += ways[arc].price;
      CHECK(has.contains(ways[arc].from));
      CHECK(has.insert(ways[arc].to).second);
    }
    CHECK(has.size() == 8);
    CHECK(sum <= least / TieredTrees::kNearlyCheapest + 1e-9);
    CHECK(sum >= least - 1e-9);
  }
}

TEST_CASE("ranks are unlike by what lies behind their own links, too") {
  CHECK_FALSE(are_ranks_unlike(test::grid(3, 3, true)));
  CHECK_FALSE(are_ranks_unlike(test::clos({4, 4}, 2)));
  CHECK(are_ranks_unlike(test::uneven_star()));
  CHECK(are_ranks_unlike(test::clos({2, 4}, 2)));  // every host has one link of 10
}

TEST_CASE("fair lanes: no pair carries more than links shared evenly give it, at no loss of rate") {
  if (!LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  // Two boxes of 8 GPUs; one NIC is dead. Shared evenly, a GPU's link into its box gives each of
  // seven pairs 300 / 7 GB/s, and a NIC each of the four GPUs at its spine 25 / 4.
  std::vector<std::vector<int>> nics(2, std::vector<int>(8, 25));
  nics[0][0] = 0;
  const Topology topology = test::boxes_with_nics(nics, 2);
  const double optimum = optimum_of(topology);
  const auto most_of_fair_share = [&](bool fair_lanes) {
    const auto forests = pack_by_prices(topology, {.good_enough = 0.998, .fair_lanes = fair_lanes});
    REQUIRE(forests);
    const auto shares = shares_of(*forests, topology, optimum);
    CHECK(*std::max_element(shares.begin(), shares.end()) <= 1.006);
    std::map<std::pair<NodeId, NodeId>, double> by_pair;
    for (const Forest* forest : {&forests->reduction, &forests->broadcast}) {
      double whole = 0;
      for (const Tree& tree : forest->trees) whole += static_cast<double>(tree.units);
      for (const Tree& tree : forest->trees) {
        for (const TreeArc& arc : tree.arcs) {
          const topology::Route& route = forest->routes[arc.route];
          by_pair[{topology.link(route.front()).from, topology.link(route.back()).to}] +=
              static_cast<double>(tree.units) / whole * optimum;
        }
      }
    }
    double most = 0;
    for (const auto& [pair, rate] : by_pair) {
      const bool is_inside = topology.node(pair.first).host == topology.node(pair.second).host;
      most = std::max(most, rate / (is_inside ? 300e9 / 7 : 25e9 / 4));
    }
    return most;
  };
  CHECK(most_of_fair_share(true) <= 1.01);
  CHECK(most_of_fair_share(false) > 1.2);
}

}  // namespace
}  // namespace rackrail::planner::priced_packing_test
