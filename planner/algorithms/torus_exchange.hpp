// The exchange of grids and tori (torus.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "planner/algorithms/exchange.hpp"
#include "planner/groups/rank_grid.hpp"

namespace rackrail::planner {

/// One part for each dimension in which it begins, twice as many where there are rings. Weights are
/// theirs by that dimension; none: by the number of links that a rank has there (one in a path's
/// bottleneck). Growth: of blocks, 2 at least; 0: all at once.
Exchange torus_exchange(const RankGrid& grid, const std::vector<std::uint32_t>& weights = {},
                        std::uint32_t growth = 0);

/// In which dimensions the part that starts in one is scattered, one after the other; gathered in
/// the reverse order.
std::vector<std::uint32_t> scatter_order(const RankGrid& grid, std::uint32_t first);

}  // namespace rackrail::planner
