#include "planner/schedules/grid_trees.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "planner/schedules/bucket_algorithm.hpp"
#include "planner/schedules/grid_shares.hpp"

namespace rackrail::planner {

namespace {

class GridTrees {
 public:
  GridTrees(const RankGrid& grid, const ScheduleRequest& request)
      : grid_(grid), places_(grid), request_(request) {}

  AllReduceForests make() {
    const std::vector<std::uint32_t> weights = tree_weights(grid_, request_.topology);
    for (std::uint32_t first = 0; first < grid_.dimensions.size(); ++first) {
      if (weights[first] > 0) {
        add_trees(scatter_order(grid_, first), weights[first]);
      }
    }
    forests_.broadcast.trees_per_rank = 1;
    forests_.reduction.trees_per_rank = 1;
    forests_.reduction.trees = forests_.broadcast.trees;
    return std::move(forests_);
  }

 private:
  /// With roots at all places but along the last dimension, where they are in the middle.
  void add_trees(const std::vector<std::uint32_t>& order, std::uint32_t weight) {
    const RankGrid::Dimension& last = grid_.dimensions[order.back()];
    const std::size_t ranks = grid_.coordinates.size();
    // The fewer trees a part has, the more each of them carries.
    const auto share = static_cast<std::int64_t>(weight) * last.size;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (grid_.coordinates[r][order.back()] == last.size / 2) {
        forests_.broadcast.trees.push_back({Rank(r), share, arcs_from(Rank(r), order)});
      }
    }
  }

  std::vector<TreeArc> arcs_from(Rank root, const std::vector<std::uint32_t>& order) {
    std::vector<TreeArc> arcs;
    std::vector<Rank> reached = {root};
    for (auto dimension = order.rbegin(); dimension != order.rend(); ++dimension) {
      for (std::size_t i = 0, before = reached.size(); i < before; ++i) {
        add_line(reached[i], *dimension, arcs, reached);
      }
    }
    return arcs;
  }

  /// Both ways along a dimension, as far round a ring one way as the other.
  void add_line(Rank from, std::uint32_t dimension, std::vector<TreeArc>& arcs,
                std::vector<Rank>& reached) {
    const std::uint32_t size = grid_.dimensions[dimension].size;
    const bool is_ring = grid_.dimensions[dimension].is_ring;
    const std::uint32_t place = grid_.coordinates[from.index()][dimension];
    const auto walk = [&](std::uint32_t steps, std::uint32_t forwards) {
      Rank at = from;
      for (std::uint32_t step = 1; step <= steps; ++step) {
        const std::uint32_t moved = step * forwards;
        const Rank next = places_.neighbour(from, dimension, (place + moved) % size);
        arcs.push_back({at, next, route(at, next)});
        reached.push_back(next);
        at = next;
      }
    };
    walk(is_ring ? size / 2 : size - 1 - place, 1);
    walk(is_ring ? (size - 1) / 2 : place, size - 1);
  }

  std::uint32_t route(Rank from, Rank to) {
    const auto [known, is_new] = routes_.try_emplace(
        std::pair(from, to), static_cast<std::uint32_t>(forests_.broadcast.routes.size()));
    if (is_new) {
      forests_.broadcast.routes.push_back(request_.router.route(from, to));
      forests_.reduction.routes.push_back(request_.router.route(to, from));
    }
    return known->second;
  }

  const RankGrid& grid_;
  GridPlaces places_;
  const ScheduleRequest& request_;
  AllReduceForests forests_;
  std::map<std::pair<Rank, Rank>, std::uint32_t> routes_;
};

}  // namespace

bool has_long_path(const RankGrid& grid) {
  return std::ranges::any_of(grid.dimensions, [](const RankGrid::Dimension& dimension) {
    return !dimension.is_ring && dimension.size > 2;
  });
}

std::uint64_t grid_tree_count(const RankGrid& grid) {
  std::uint64_t trees = 0;
  for (std::uint32_t first = 0; first < grid.dimensions.size(); ++first) {
    trees += grid.coordinates.size() / grid.dimensions[scatter_order(grid, first).back()].size;
  }
  return trees;
}

AllReduceForests grid_trees(const RankGrid& grid, const ScheduleRequest& request) {
  return GridTrees(grid, request).make();
}

}  // namespace rackrail::planner
