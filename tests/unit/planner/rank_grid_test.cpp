#include "planner/groups/rank_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "tests/support/grids.hpp"

namespace rackrail::planner::rank_grid_test {
namespace {

using test::grid;
using test::Side;
using topology::Topology;

std::multiset<std::pair<std::uint32_t, bool>> shape(const RankGrid& grid) {
  std::multiset<std::pair<std::uint32_t, bool>> shape;
  for (const RankGrid::Dimension& dimension : grid.dimensions) {
    shape.emplace(dimension.size, dimension.is_ring);
  }
  return shape;
}

TEST_CASE("grids and tori are found whatever the numbers of their ranks") {
  struct Case {
    std::vector<Side> sides;
    std::multiset<std::pair<std::uint32_t, bool>> found;
  };
  const std::vector<Case> cases = {
      {{{2, false}}, {{2, false}}},
      {{{5, false}}, {{5, false}}},
      {{{7, true}}, {{7, true}}},
      {{{3, true}, {3, true}}, {{3, true}, {3, true}}},
      {{{4, true}, {4, true}}, {{2, false}, {2, false}, {2, false}, {2, false}}},
      {{{5, true}, {6, true}}, {{5, true}, {6, true}}},
      {{{4, false}, {4, false}}, {{4, false}, {4, false}}},
      {{{3, true}, {5, false}, {2, false}}, {{2, false}, {3, true}, {5, false}}},
      {{{3, true}, {4, true}, {6, true}}, {{2, false}, {2, false}, {3, true}, {6, true}}},
      {{{8, true}, {8, true}, {3, false}}, {{3, false}, {8, true}, {8, true}}},
  };
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      CAPTURE(seed, i);
      const auto found = find_rank_grid(grid(cases[i].sides, random));
      REQUIRE(std::holds_alternative<RankGrid>(found));
      CHECK(shape(std::get<RankGrid>(found)) == cases[i].found);
    }
  }
}

TEST_CASE("neighbours on the grid that is found are linked ranks") {
  constexpr std::uint32_t kSeed = 11;
  std::mt19937 random(kSeed);
  const Topology topology = grid({{5, true}, {3, false}, {3, true}}, random);
  const auto found = find_rank_grid(topology);
  const auto& coordinates = std::get<RankGrid>(found).coordinates;
  const auto& dimensions = std::get<RankGrid>(found).dimensions;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const auto& a = coordinates[topology.rank_of(topology.link(LinkId(i)).from)->index()];
    const auto& b = coordinates[topology.rank_of(topology.link(LinkId(i)).to)->index()];
    std::size_t steps = 0;
    for (std::size_t d = 0; d < a.size(); ++d) {
      const std::uint32_t apart = std::max(a[d], b[d]) - std::min(a[d], b[d]);
      steps += dimensions[d].is_ring ? std::min(apart, dimensions[d].size - apart) : apart;
    }
    CHECK(steps == 1);
  }
}

TEST_CASE("what is no grid is refused with the reason") {
  constexpr std::uint32_t kSeed = 3;
  std::mt19937 random(kSeed);
  const auto reason = [](const Topology& topology) {
    return std::get<std::string>(find_rank_grid(topology));
  };
  Topology star("star");
  const NodeId hub = star.add_node({.name = "hub", .kind = topology::NodeKind::kSwitch});
  for (int i = 0; i < 4; ++i) {
    const NodeId gpu =
        star.add_node({.name = fmt::format("gpu{}", i), .kind = topology::NodeKind::kGpu});
    star.add_rank(gpu);
    star.add_duplex_link({.from = gpu, .to = hub, .bandwidth = 10_GBps});
  }
  CHECK_THAT(reason(star), Catch::Contains("gpu0 has no link to another rank"));

  Topology diagonal = grid({{4, false}, {4, false}}, random);
  const NodeId a = diagonal.node_of(Rank(0));
  for (std::uint32_t r = 1; r < 16; ++r) {
    const NodeId b = diagonal.node_of(Rank(r));
    const auto out = diagonal.links_out_of(a);
    if (std::none_of(out.begin(), out.end(), [&](LinkId l) { return diagonal.link(l).to == b; })) {
      diagonal.add_duplex_link({.from = a, .to = b, .bandwidth = 10_GBps});
      break;
    }
  }
  CHECK_THAT(reason(diagonal), Catch::Contains("no product of rings and paths"));

  Topology one_way("one way");
  for (int i = 0; i < 3; ++i) {
    one_way.add_rank(
        one_way.add_node({.name = fmt::format("gpu{}", i), .kind = topology::NodeKind::kGpu}));
  }
  for (std::uint32_t i = 0; i < 3; ++i) {
    one_way.add_link({.from = one_way.node_of(Rank(i)),
                      .to = one_way.node_of(Rank((i + 1) % 3)),
                      .bandwidth = 10_GBps});
  }
  CHECK_THAT(reason(one_way), Catch::Contains("no link to another rank"));
}

TEST_CASE("a grid with any link missing is none") {
  constexpr std::uint32_t kSeed = 5;
  for (std::size_t missing = 0; missing < 18; ++missing) {
    std::mt19937 random(kSeed);
    const Topology whole = grid({{3, true}, {3, true}}, random);
    Topology damaged("damaged");
    for (std::uint32_t r = 0; r < 9; ++r) {
      damaged.add_rank(damaged.add_node(whole.node(whole.node_of(Rank(r)))));
    }
    for (std::size_t i = 0; i < whole.link_count(); ++i) {
      if (i / 2 != missing) {
        damaged.add_link(whole.link(LinkId(i)));
      }
    }
    CAPTURE(missing);
    CHECK(std::holds_alternative<std::string>(find_rank_grid(damaged)));
  }
}

}  // namespace
}  // namespace rackrail::planner::rank_grid_test
