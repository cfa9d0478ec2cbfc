// How much of a buffer begins in which dimension of a grid, so that links of all dimensions are
// busy for as long: a matrix game. Of the shares w of the parts with times t_pd that part p, were
// it the whole buffer, would keep a link of dimension d busy,
//   max_d Σ_p w_p·t_pd
// is least where some parts keep as many dimensions equally busy (Shapley and Snow, "Basic
// solutions of discrete games", 1950), so all such choices are looked at: C(2D, D) for D parts in
// as many dimensions.
//
// In which order the moves of trees (grid_trees.hpp) go along dimensions decides how many of the
// N − 1 are along each: n_d − 1 for each line that is left. Those of all orders are the vertices of
// a base polytope (Edmonds, "Submodular functions, matroids, and certain polyhedra", 1970), of
// which f(S) = Π_{d in S} n_d − 1 is the least along dimensions S. So some mix of orders keeps
// links busy for no longer than a partition into what the other dimensions span must. In two and
// three dimensions all orders are looked at, in more those that one is after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/groups/rank_grid.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The slowest link along each dimension, in bytes per second.
std::vector<double> dimension_rates(const RankGrid& grid, const topology::Topology& topology);

/// Whether all links along a dimension are as fast.
bool are_lines_even(const RankGrid& grid, const topology::Topology& topology);

/// Shares that sum to 1, by part, of times by part and dimension. Equal ones of the first parts, as
/// many as dimensions, where none are better, and with more than five dimensions.
std::vector<double> balanced_shares(std::vector<std::vector<double>> times);

/// For torus_exchange(), in lowest terms: of an all-gather or reduce-scatter, or both.
std::vector<std::uint32_t> bucket_weights(const RankGrid& grid, const topology::Topology& topology);

/// What of a buffer goes along trees whose sums take dimensions in an order.
struct TreeOrder {
  std::vector<std::uint32_t> dimensions;
  double share = 0;
};

/// Those of an all-reduce that have a share; they sum to 1. `are_all_round`: whether trees whose
/// last dimension is a ring have roots at all of its places, which loads all of its links equally.
std::vector<TreeOrder> tree_orders(const RankGrid& grid, const topology::Topology& topology,
                                   bool are_all_round);

}  // namespace rackrail::planner
