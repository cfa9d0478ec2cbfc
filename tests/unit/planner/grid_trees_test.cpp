// Trees for an all-reduce on grids: right on every grid, and links busy for no longer than
// partitions of the grid say they must be.
#include "planner/algorithms/grid_trees.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/grid_shares.hpp"
#include "planner/pipeline/builder.hpp"
#include "tests/support/form_checks.hpp"
#include "tests/support/grids.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::grid_trees_test {
namespace {

using test::Side;
using topology::Topology;

Topology shuffled_grid(const std::vector<Side>& sides) {
  constexpr std::uint32_t kSeed = 12;
  std::mt19937 random(kSeed);
  return test::grid(sides, random);
}

RankGrid grid_of(const Topology& topology) { return std::get<RankGrid>(find_rank_grid(topology)); }

TEST_CASE("trees on a grid are right, whatever its dimensions, rounds and roots") {
  for (const std::vector<Side>& sides : std::vector<std::vector<Side>>{
           {{2, false}},
           {{6, false}},
           {{5, true}},
           {{4, true}, {8, true}},
           {{5, true}, {3, false}},
           {{4, false}, {3, false}},
           {{5, false, 40_GBps}, {7, true, 25_GBps}},
           {{17, false}, {3, false}},
           {{3, true}, {2, false}, {5, true}},
           {{3, false, 40_GBps}, {4, false, 10_GBps}, {3, true, 25_GBps}}}) {
    const Topology topology = shuffled_grid(sides);
    topology::Router router(topology);
    const RankGrid grid = grid_of(topology);
    for (const char* codec : {"none", "fp16"}) {
      const plan::Codec used = plan::parse_codec(codec);
      const ScheduleRequest request{topology, router, {used, used}};
      for (const bool are_all_round : {true, false}) {
        for (const std::size_t rounds : {1U, 3U}) {
          INFO(topology.rank_count()
               << " ranks, " << codec << ", " << rounds << " rounds, " << are_all_round);
          const GridTreeOptions options{rounds, are_all_round};
          const auto graph = make_grid_trees(grid, request, options);
          CHECK(graph.name() == "torus");
          CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
          CHECK(graph.transfers().size() == grid_tree_transfers(grid, topology, options));
        }
      }
    }
  }
}

/// Seconds that a byte of an all-reduce takes at least: of all partitions into what some of the
/// dimensions span, each part being summed up once in all others, and copied there.
double least_by_partitions(const std::vector<Side>& sides) {
  double least = 0;
  double ranks = 1;
  for (const Side& side : sides) {
    ranks *= side.size;
  }
  for (std::uint32_t cut = 1; cut < 1U << sides.size(); ++cut) {
    double parts = 1;
    double capacity = 0;
    for (std::size_t d = 0; d < sides.size(); ++d) {
      if ((cut >> d & 1U) != 0) {
        const Side& side = sides[d];
        parts *= side.size;
        capacity += 2 * ranks / side.size * (side.size - (side.is_ring ? 0 : 1)) *
                    static_cast<double>(side.rate.bytes_per_second());
      }
    }
    least = std::max(least, 2 * (parts - 1) / capacity);
  }
  return least;
}

TEST_CASE("along trees no link of a grid is busy for longer than partitions say") {
  for (const std::vector<Side>& sides : std::vector<std::vector<Side>>{
           {{3, false}, {3, false}},
           {{6, false}, {6, false}},
           {{8, false}, {3, false}},
           {{7, true}, {5, false}},
           {{5, false, 40_GBps}, {7, true, 25_GBps}},
           {{5, true, 40_GBps}, {7, false, 25_GBps}},
           {{5, false, 100_GBps}, {7, true, 1_GBps}},
           {{3, false}, {3, false}, {3, false}},
           {{3, false, 40_GBps}, {5, false, 10_GBps}, {3, true, 25_GBps}},
           // The first dimension has to be the first one of all trees, and both others the second.
           {{3, false, 400_GBps}, {5, false, 10_GBps}, {3, false, 10_GBps}}}) {
    const Topology topology = shuffled_grid(sides);
    topology::Router router(topology);
    const auto graph = make_grid_trees(grid_of(topology), {topology, router, {}}, {.rounds = 4});
    const double least = least_by_partitions(sides);
    CAPTURE(topology.rank_count(), sides[0].size, least);
    CHECK(plan::alpha_beta(graph, topology).seconds_per_element / 4 == Approx(least).epsilon(1e-3));
  }
}

TEST_CASE("roots in the middle of a ring leave one of its links out") {
  const Topology topology = shuffled_grid({{5, false, 40_GBps}, {7, true, 25_GBps}});
  topology::Router router(topology);
  const RankGrid grid = grid_of(topology);
  const auto time = [&](bool are_all_round) {
    const auto graph =
        make_grid_trees(grid, {topology, router, {}}, {.are_all_round = are_all_round});
    return plan::alpha_beta(graph, topology).seconds_per_element;
  };
  // Of w that begins on the path a link of the ring carries 1/5, else 6/7 of 1/5; of the rest 6/7.
  CHECK(time(false) / time(true) == Approx(1.019).epsilon(1e-3));
}

TEST_CASE("what trees on grids are like is known before they are made", "[slow]") {
  for (const std::vector<Side>& sides :
       std::vector<std::vector<Side>>{{{5, false}, {3, false}},
                                      {{4, false, 40_GBps}, {5, true, 25_GBps}},
                                      {{9, false}, {17, true, 1_GBps}},
                                      {{3, false}, {3, true}, {5, false}}}) {
    const Topology topology = shuffled_grid(sides);
    topology::Router router(topology);
    const auto forms =
        grid_tree_forms(grid_of(topology), {.topology = topology,
                                            .router = router,
                                            .codecs = {},
                                            .most_rounds = 8,
                                            .most_of_pipelines = kMostPlannedTransfers});
    CHECK(forms.size() >= 2);
    for (const CollectiveForm& form : forms) {
      check_shape(form, topology);
    }
  }
  // Where one size is looked at there are more rounds on a large grid. None is made here.
  const Topology large = shuffled_grid({{32, false}, {32, false}});
  topology::Router ways(large);
  ScheduleRequest request{.topology = large, .router = ways, .codecs = {}, .most_rounds = 256};
  const auto most = [&] {
    std::int64_t transfers = 0;
    for (const CollectiveForm& form : grid_tree_forms(grid_of(large), request)) {
      transfers = std::max(transfers, form.shape().transfers);
    }
    return transfers;
  };
  const std::int64_t of_plan = most();
  CHECK(of_plan <= static_cast<std::int64_t>(kMostPlannedTransfers));
  request.most_of_pipelines = kMostPlannedTransfers;
  CHECK(most() > 3 * of_plan);
  // Halves are as good on a torus.
  const Topology torus = shuffled_grid({{5, true}, {7, true}});
  topology::Router router(torus);
  CHECK(grid_tree_forms(grid_of(torus), {torus, router, {}}).empty());
}

}  // namespace
}  // namespace rackrail::planner::grid_trees_test
