// Forests of clusters whose optimum is known (Zhao et al., "ForestColl", arXiv 2402.06787, and
// closed forms), and what such forests are held to: their size, their depth, what their graphs do.
#include "planner/packing/forest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/packing/joint_forest.hpp"
#include "planner/pipeline/collective_form.hpp"
#include "planner/pipeline/forest_schedule.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/tree_loads.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::forest_test {
namespace {

using topology::Topology;

double gigabytes(Bandwidth rate) { return static_cast<double>(rate.bytes_per_second()) * 1e-9; }

void check(const Forest& forest, const Topology& topology, bool reversed = false) {
  const std::vector<std::string> problems = problems_of(forest, topology, reversed);
  INFO(fmt::format("{}", fmt::join(problems, "\n")));
  CHECK(problems.empty());
}

/// Of the bound, what the links leave room for by what they carry; what a forest says of itself is
/// the same.
double share_of_bound(const Forest& forest, const Topology& topology, bool reversed) {
  const auto bound =
      reversed ? topology::reducescatter_bound(topology) : topology::allgather_bound(topology);
  const double share = test::rate_of_worst_link(topology, forest) /
                       static_cast<double>(bound.algbw.bytes_per_second());
  CHECK(forest.share_of_bound == Approx(share).epsilon(1e-6));
  return share;
}

/// The most that trees may be deep.
std::size_t deepest(const Topology& topology) { return 2 * test::diameter_of(topology) + 4; }

TEST_CASE("forests reach the known optimum of all-gather") {
  struct Case {
    std::string name;
    Topology topology;
    double optimum;  // GB/s
  };
  const Case cases[] = {
      {"one box, its NICs included", test::boxes(1, 2), 8 * 325.0 / 7},
      {"two boxes on two spines", test::boxes(2, 2), 346.0 + 2.0 / 3},
      {"four boxes on two spines", test::boxes(4, 2), 266.0 + 2.0 / 3},
      {"eight boxes on rails", test::boxes(8, 8), 64.0 * 200 / 56},
      {"two racks", test::two_racks(), 8},
      {"torus", test::grid(4, 4, true), 64.0 / 15},
      {"mesh", test::grid(4, 4, false), 32.0 / 15},
      {"larger mesh", test::grid(8, 8, false), 128.0 / 63},
      {"ring", test::grid(1, 16, true), 32.0 / 15},
      {"cube mesh", test::cube_mesh(), 8.0 * 6 / 7},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const Forest forest =
        make_forest(c.topology, {.most_trees_per_rank = 16, .good_enough = 1 - 1e-7});
    check(forest, c.topology);
    CHECK(gigabytes(forest.algbw) == Approx(c.optimum).epsilon(1e-6));
    CHECK(test::rate_of_worst_link(c.topology, forest) * 1e-9 == Approx(c.optimum).epsilon(1e-6));
    CHECK(share_of_bound(forest, c.topology, false) == Approx(1).epsilon(1e-6));
  }
}

// 96 % are wanted of at most four trees per rank.
TEST_CASE("few trees per rank keep 98 % of the optimum") {
  for (const Topology& topology :
       {test::boxes(2, 2), test::boxes(3, 2), test::grid(4, 4, true), test::grid(6, 6, true),
        test::grid(8, 8, false), test::clos({2, 3, 1}, 2), test::two_racks(),
        test::clos({8, 4, 6}, 3), test::uneven_star()}) {
    for (const bool reversed : {false, true}) {
      INFO(topology.name() << " of " << topology.rank_count() << (reversed ? ", reversed" : ""));
      const Forest forest = make_forest(topology, {}, reversed);
      check(forest, topology, reversed);
      CHECK(forest.trees_per_rank <= 4);
      CHECK(share_of_bound(forest, topology, reversed) >= 0.98);
    }
  }
  // Whole trees only: 7 k enter each GPU of a cube mesh, over two links of 25 and two of 50 GB/s.
  // Of k up to 4 two are best: 14 = 2 * 2 + 2 * 5, at 5 for 50 GB/s instead of 14/3.
  const Forest forest = make_forest(test::cube_mesh());
  check(forest, test::cube_mesh());
  CHECK(forest.trees_per_rank <= 4);
  CHECK(forest.share_of_bound == Approx(14.0 / 15).epsilon(1e-6));
  // 12 k trees enter each host of GPUs with NICs of 25, 25, 10 and 3 GB/s. For k up to 4 their
  // whole numbers suffice only where there is one for 5 GB/s, the bound being one for 5.25.
  const Forest by_gpu = make_forest(test::nics_by_gpu());
  check(by_gpu, test::nics_by_gpu());
  CHECK(by_gpu.trees_per_rank <= 4);
  CHECK(by_gpu.share_of_bound == Approx(5 / 5.25).epsilon(1e-6));
}

/// Clusters whose trees must not be deeper than 2 · diameter + 4.
std::vector<Topology> of_many_shapes() {
  return {test::boxes(2, 2),
          test::boxes(32, 2),
          test::boxes(32, 8),
          test::grid(4, 4, true),
          test::grid(8, 8, true),
          test::grid(8, 8, false),
          test::grid(16, 16, true),
          test::cube_mesh(),
          test::clos({2, 3, 1}, 2),
          test::clos({8, 4, 6}, 3),
          test::clos({8, 4, 6}, 2),
          test::clos({8, 5, 7, 6, 3}, 4),
          test::three_tiers({{4, 3}, {5, 2}}, 2),
          test::missing_nics(),
          test::uneven_hosts(),
          test::rail_racks({}),
          test::rail_racks({.racks = 3, .hosts = 1, .nics = 2, .spines = 3, .oversubscription = 2}),
          test::two_racks(),
          test::uneven_star()};
}

TEST_CASE("under spines, what goes up from a rail goes to other racks, in flat trees") {
  // Chains from rank to rank through each box are deeper: 17 arcs.
  const Topology topology = test::rail_racks({});
  for (const bool reversed : {false, true}) {
    const Forest forest =
        make_forest(topology, {.most_trees_per_rank = 16, .good_enough = 0.9999}, reversed);
    CHECK(problems_of(forest, topology, reversed) == std::vector<std::string>{});
    CHECK(share_of_bound(forest, topology, reversed) >= 0.9999);
    CHECK(depth_of(forest) <= 4);
  }
}

TEST_CASE("trees stay shallow, both those that broadcast and those that sum", "[slow]") {
  for (const Topology& topology : of_many_shapes()) {
    for (const bool reversed : {false, true}) {
      const Forest forest = make_forest(topology, {.most_trees_per_rank = 16}, reversed);
      INFO(topology.name() << " of " << topology.rank_count() << (reversed ? ", reversed" : ""));
      check(forest, topology, reversed);
      CHECK(share_of_bound(forest, topology, reversed) >= 0.98);
      CHECK(test::longest_way(forest, topology.rank_count()) <= deepest(topology));
      CHECK(depth_of(forest) == test::longest_way(forest, topology.rank_count()));
    }
  }
}

TEST_CASE("both forests of an all-reduce stay shallow, and the best are near the joint optimum") {
  for (const Topology& topology : of_many_shapes()) {
    const std::vector<AllReduceForests> all =
        allreduce_forests(topology, {.most_trees_per_rank = 16});
    for (const AllReduceForests& forests : all) {
      INFO(topology.name() << " of " << topology.rank_count() << ", " << gigabytes(forests.algbw));
      CHECK(test::longest_way(forests.reduction, topology.rank_count()) <= deepest(topology));
      CHECK(test::longest_way(forests.broadcast, topology.rank_count()) <= deepest(topology));
      CHECK(test::do_trees_span(topology, forests.reduction, true));
      CHECK(test::do_trees_span(topology, forests.broadcast, false));
      CHECK(test::do_roots_agree(topology, forests));
      CHECK(static_cast<double>(forests.algbw.bytes_per_second()) ==
            Approx(test::rate_of_worst_link(topology, forests)).epsilon(1e-6));
    }
    const Bandwidth bound = topology::joint_allreduce_bound(topology).algbw;
    INFO(topology.name() << " of " << topology.rank_count() << ", bound " << gigabytes(bound));
    CHECK(gigabytes(all.back().algbw) >= 0.98 * gigabytes(bound));
  }
}

TEST_CASE("paths where switches are not removed at all") {
  for (const Topology& topology : {test::three_tiers({{12, 8}, {9, 7}, {13, 11}}, 3),
                                   test::three_tiers({{10, 7}, {9, 4}, {12, 8}}, 1)}) {
    REQUIRE(topology.rank_count() > 48);  // too many for it to be done exactly
    for (const bool reversed : {false, true}) {
      INFO(topology.rank_count() << (reversed ? " reversed" : ""));
      const Forest forest = make_forest(topology, {.most_trees_per_rank = 4}, reversed);
      check(forest, topology, reversed);
      CHECK(share_of_bound(forest, topology, reversed) >= 0.98);
      CHECK(make_forest(topology, {.most_trees_per_rank = 4}, reversed) == forest);
    }
  }
}

TEST_CASE("all-reduce forests reach the joint optimum where halves are uneven") {
  struct Case {
    Topology topology;
    double optimum;  // GB/s
  };
  const Case cases[] = {{test::grid(4, 4, false), 1.6}, {test::uneven_star(), 25}};
  for (const Case& c : cases) {
    const AllReduceForests forests = make_allreduce_forests(c.topology);
    INFO(c.topology.name());
    const double rate = test::rate_of_worst_link(c.topology, forests) * 1e-9;
    CHECK(gigabytes(forests.algbw) == Approx(rate).epsilon(1e-6));
    CHECK(rate >= 0.98 * c.optimum);
    CHECK(rate <= c.optimum * (1 + 1e-6));
    topology::Router router(c.topology);
    const plan::TransferGraph graph =
        all_reduce_along(forests.reduction, forests.broadcast, {c.topology, router, {}}, 2);
    CHECK(plan::verify(graph, &c.topology).ok());
  }
}

TEST_CASE("the last rounds of a collective alone have no rates, buckets of a step all have") {
  const Topology racks = test::racks({{25, 10}, {5, 10}, {5, 5}}, {5, 10, 20});
  const AllReduceForests forests = make_allreduce_forests(racks);
  topology::Router router(racks);
  for (const auto& [rounds, rated] : {std::pair(16U, 16U), std::pair(24U, 21U)}) {
    CAPTURE(rounds);
    const plan::TransferGraph graph = all_reduce_along(forests.reduction, forests.broadcast,
                                                       {racks, router, {}}, rounds, Pace::kRated);
    CHECK(plan::verify(graph, &racks).ok());
    for (const plan::Transfer& transfer : graph.transfers()) {
      const bool has_rate = graph.rate(transfer.route) > Bandwidth{};
      CHECK(has_rate == (transfer.chunk_begin % rounds < rated));
    }
  }
}

TEST_CASE(
    "where parts take turns all pieces are of about one size, and their shape is known before") {
  const Topology topology = test::nics_by_gpu();
  const std::vector<AllReduceForests> found = priced_forests(topology);  // trees of any shares
  if (found.empty()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  const AllReduceForests& forests = found.front();
  topology::Router router(topology);
  const ScheduleRequest request{topology, router, {}};
  const auto graph_in = [&](std::size_t rounds, Pace pace) {
    return all_reduce_along(forests.reduction, forests.broadcast, request, rounds, pace);
  };
  const FormShape one = CollectiveForm(graph_in(1, Pace::kStages), topology).shape();
  for (const std::size_t rounds : {4U, 16U}) {
    CAPTURE(rounds);
    const plan::TransferGraph graph = graph_in(rounds, Pace::kEvenTurns);
    CHECK(plan::verify(graph, &topology).ok());
    const FormShape shape =
        in_rounds(one, &forests.reduction, &forests.broadcast, rounds, Pace::kEvenTurns);
    CHECK(shape.transfers == static_cast<std::int64_t>(graph.transfers().size()));
    const auto weights = graph.chunk_weights();
    const auto whole = std::accumulate(weights.begin(), weights.end(), 0.0);
    const double largest = *std::max_element(weights.begin(), weights.end()) / whole;
    CHECK(shape.largest_share == Approx(largest).epsilon(1e-4));
    // In rounds the largest tree's pieces are as much larger as the tree is.
    const plan::TransferGraph rounded = graph_in(rounds, Pace::kUrgent);
    const auto others = rounded.chunk_weights();
    const auto all = std::accumulate(others.begin(), others.end(), 0.0);
    CHECK(largest < 0.9 * *std::max_element(others.begin(), others.end()) / all);
    // The bound counts on chains whose pieces are all sent.
    const std::int64_t fewest = shape.bound->fewest_elements;
    for (std::uint32_t chunk = 0; chunk < graph.chunk_count(); ++chunk) {
      CHECK(graph.range(chunk, 1, fewest).size() > 0);
    }
    const plan::AlphaBeta own = plan::alpha_beta(graph, topology);
    CHECK(shape.bound->alpha <= own.alpha);
    CHECK(shape.bound->seconds_per_element == Approx(own.seconds_per_element).epsilon(1e-5));
  }
}

/// By route, of those with a rate, how long it takes for what goes over its links, over the
/// longest.
std::vector<double> busy_shares(const plan::TransferGraph& graph) {
  std::map<std::vector<LinkId>, double> carried;
  const auto links_of = [&](RouteId id) {
    const std::vector<LinkId>& links = graph.routes()[id.index()];
    return std::vector<LinkId>(links.begin(), links.end());
  };
  for (const plan::Transfer& transfer : graph.transfers()) {
    carried[links_of(transfer.route)] += graph.chunk_weights()[transfer.chunk_begin];
  }
  std::vector<double> shares;
  std::set<RouteId> seen;
  for (const plan::Transfer& transfer : graph.transfers()) {
    const Bandwidth rate = graph.rate(transfer.route);
    if (rate > Bandwidth{} && seen.insert(transfer.route).second) {
      shares.push_back(carried.at(links_of(transfer.route)) / gigabytes(rate));
    }
  }
  const double longest = *std::ranges::max_element(shares);
  for (double& share : shares) {
    share /= longest;
  }
  return shares;
}

TEST_CASE(
    "in turns at rates pieces are those of turns, and no route is much quicker than it need") {
  const Topology topology = test::nics_by_gpu();
  const std::vector<AllReduceForests> found = priced_forests(topology);
  if (found.empty()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  const AllReduceForests& forests = found.front();
  topology::Router router(topology);
  const auto graph_at = [&](Pace pace) {
    constexpr std::size_t kRounds = 16;
    return all_reduce_along(forests.reduction, forests.broadcast, {topology, router, {}}, kRounds,
                            pace);
  };
  const plan::TransferGraph graph = graph_at(Pace::kRatedTurns);
  CHECK(plan::verify(graph, &topology).ok());
  // With little more than it needs a route is busy for most of the time; some would not be.
  CHECK(std::ranges::min(busy_shares(graph)) > 0.85);
  CHECK(std::ranges::min(busy_shares(graph_at(Pace::kRated))) < 0.8);
}

TEST_CASE("a forest with a wrong arc, link or root has problems") {
  const Topology topology = test::boxes(2, 2);
  const Forest right = make_forest(topology);
  REQUIRE(problems_of(right, topology).empty());
  Forest wrong = right;
  wrong.trees[0].arcs.pop_back();
  CHECK_FALSE(problems_of(wrong, topology).empty());
  wrong = right;
  wrong.routes[wrong.trees[0].arcs[0].route].pop_back();
  CHECK_FALSE(problems_of(wrong, topology).empty());
  wrong = right;
  std::swap(wrong.trees[0].arcs.front(), wrong.trees[0].arcs.back());
  CHECK_FALSE(problems_of(wrong, topology).empty());
  wrong = right;
  wrong.trees[0].units += 1;
  CHECK_FALSE(problems_of(wrong, topology).empty());
  wrong = right;
  wrong.algbw = wrong.algbw * 2;
  CHECK_FALSE(problems_of(wrong, topology).empty());
}

}  // namespace
}  // namespace rackrail::planner::forest_test
