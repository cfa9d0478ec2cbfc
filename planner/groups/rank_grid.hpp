// Ranks that form a grid or torus by links from rank to rank.
//
// A grid is a Cartesian product of paths and rings; its dimensions are the factors of the graph of
// direct links. They are found without names or numbers: two links of a rank run along the same
// dimension when no other rank than this one is next to both their ends, and opposite sides of a
// square without diagonals do; the closure of both is the product relation (Feder, "Product graph
// representations", J. Graph Theory 16, 1992; on products of paths and rings squares give all of
// Djoković's relation that is needed). Removing the links of a dimension leaves its layers, which
// number the coordinate. A ring of four is the product of two paths of two, so tori with sides of
// four come out as partly hypercubes: same links, fewer hops. What is found is checked link by
// link, so an answer is a grid even where the closure was too small. O(n · degree³).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

struct RankGrid {
  struct Dimension {
    std::uint32_t size = 0;  ///< at least 2
    bool is_ring = false;    ///< of three or more: the last position is linked to the first
  };
  std::vector<Dimension> dimensions;
  /// By rank, then dimension. Neighbours along a dimension differ by one there (in a ring, modulo
  /// its size) and nowhere else, and are linked in both directions.
  std::vector<std::vector<std::uint32_t>> coordinates;
};

/// Ranks by where they are.
class GridPlaces {
 public:
  /// The grid must outlive it.
  explicit GridPlaces(const RankGrid& grid);

  /// On the same line along a dimension, at this position.
  Rank neighbour(Rank rank, std::uint32_t dimension, std::uint32_t position) const;

 private:
  const RankGrid& grid_;
  std::vector<std::size_t> strides_;  ///< of a place's number, by dimension
  std::vector<Rank> rank_at_;         ///< by a place's number
};

/// The grid, or why there is none, in words for a user.
std::variant<RankGrid, std::string> find_rank_grid(const topology::Topology& topology);

}  // namespace rackrail::planner
