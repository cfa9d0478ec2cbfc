// Ranks in groups of groups.
#include "planner/groups/rank_hierarchy.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <variant>
#include <vector>

#include "tests/support/clusters.hpp"

namespace rackrail::planner::rank_hierarchy_test {
namespace {

/// By group its ranks, those of members one after the other.
std::vector<std::vector<std::uint32_t>> ranks_of(const RankHierarchy& hierarchy, std::size_t l) {
  std::vector<std::vector<std::uint32_t>> groups;
  for (const RankHierarchy::Group& group : hierarchy.level(l)) {
    auto& ranks = groups.emplace_back();
    for (const std::size_t member : group.members) {
      if (l == 0) {
        ranks.push_back(hierarchy.rank_at(member).value());
        continue;
      }
      const auto below = ranks_of(hierarchy, l - 1)[member];
      ranks.insert(ranks.end(), below.begin(), below.end());
    }
    CHECK(ranks.size() == group.ranks);
  }
  return groups;
}

using Ranks = std::vector<std::vector<std::uint32_t>>;

TEST_CASE("levels are those that the cluster has") {
  const RankHierarchy pods = all_levels(test::pods({{{2, 1}, {2}}, {{1}, {1}}}));
  REQUIRE(pods.levels().size() == 4);
  CHECK(ranks_of(pods, 0) == Ranks{{0, 1}, {2}, {3, 4}, {5}, {6}});
  CHECK(ranks_of(pods, 1) == Ranks{{0, 1, 2}, {3, 4}, {5}, {6}});
  CHECK(ranks_of(pods, 2) == Ranks{{0, 1, 2, 3, 4}, {5, 6}});
  CHECK(ranks_of(pods, 3) == Ranks{{0, 1, 2, 3, 4, 5, 6}});
  CHECK(pods.largest(0) == 2);
  CHECK_FALSE(pods.is_even(0));
  CHECK(pods.is_even(3));
  CHECK(pods.group_of(Rank(4)) == 2);
  CHECK(pods.level(1)[1].parent == 0);
  CHECK(pods.level(1)[1].position == 1);
}

TEST_CASE("one level without groups") {
  const RankHierarchy mesh = groups_and_all(test::grid(2, 2, false));
  CHECK(ranks_of(mesh, mesh.levels().size() - 1) == Ranks{{0, 1, 2, 3}});
}

TEST_CASE("groups in a grid: columns far apart first, then neighbours") {
  const RankHierarchy grid = groups_in_grid(test::boxes(6, 1), std::vector<std::size_t>{3, 2});
  REQUIRE(grid.levels().size() == 3);
  const auto boxes = ranks_of(grid, 0);
  REQUIRE(boxes.size() == 6);
  // Two that are three apart, and three of these.
  REQUIRE(grid.level(1).size() == 3);
  CHECK(grid.level(1)[1].members == std::vector<std::size_t>{1, 4});
  CHECK(grid.level(2)[0].members == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("lines of a grid, in the order of dimensions") {
  const auto topology = test::grid(3, 2, false);
  const auto grid = std::get<RankGrid>(find_rank_grid(topology));
  for (const std::vector<std::uint32_t>& order :
       {std::vector<std::uint32_t>{0, 1}, std::vector<std::uint32_t>{1, 0}}) {
    const RankHierarchy lines = lines_of_grid(grid, order);
    REQUIRE(lines.levels().size() == 2);
    for (const auto& line : ranks_of(lines, 0)) {
      CHECK(line.size() == grid.dimensions[order[0]].size);
      for (std::size_t i = 0; i < line.size(); ++i) {
        CHECK(grid.coordinates[line[i]][order[0]] == i);
        CHECK(grid.coordinates[line[i]][order[1]] == grid.coordinates[line[0]][order[1]]);
      }
    }
  }
}

}  // namespace
}  // namespace rackrail::planner::rank_hierarchy_test
