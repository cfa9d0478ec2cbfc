#include "planner/algorithms/torus_exchange.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace rackrail::planner {

std::vector<std::uint32_t> scatter_order(const RankGrid& grid, std::uint32_t first) {
  const auto dimensions = static_cast<std::uint32_t>(grid.dimensions.size());
  std::vector<std::uint32_t> order;
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    order.push_back((first + d) % dimensions);
  }
  return order;
}

Exchange torus_exchange(const RankGrid& grid, const std::vector<std::uint32_t>& weights,
                        std::uint32_t growth) {
  const bool has_rings = std::ranges::any_of(grid.dimensions, &RankGrid::Dimension::is_ring);
  std::vector<std::uint32_t> sizes;
  for (const RankGrid::Dimension& dimension : grid.dimensions) {
    sizes.push_back(dimension.size);
  }
  Exchange exchange{
      "torus", fmt::format("dimension by dimension of {}", fmt::join(sizes, "x")), {}};
  for (std::uint32_t first = 0; first < sizes.size(); ++first) {
    const std::uint32_t usual = grid.dimensions[first].is_ring ? 2 : 1;
    const std::uint32_t weight = weights.empty() ? usual : weights[first];
    const std::vector<std::uint32_t> order = scatter_order(grid, first);
    std::vector<ExchangeLevel> levels;
    for (const std::uint32_t d : order) {
      levels.push_back({grid.dimensions[d].is_ring ? Way::kRing : Way::kPath, growth});
    }
    for (const bool is_back : {false, true}) {
      if (weight > 0 && (has_rings || !is_back)) {
        exchange.parts.push_back({lines_of_grid(grid, order), levels, {}, {}, weight, is_back});
      }
    }
  }
  return exchange;
}

}  // namespace rackrail::planner
