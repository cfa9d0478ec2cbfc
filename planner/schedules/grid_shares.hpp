// How much of a buffer begins in which dimension of a grid, so that links of all dimensions are
// busy for as long: a matrix game of as many rows as columns. Of the shares w of the parts with
// times t_pd that part p, were it the whole buffer, would keep a link of dimension d busy,
//   max_d Σ_p w_p·t_pd
// is least where some parts keep as many dimensions equally busy (Shapley and Snow, "Basic
// solutions of discrete games", 1950), so all such choices are looked at: C(2D, D) for D
// dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/schedules/rank_grid.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The slowest link along each dimension, in bytes per second.
std::vector<double> dimension_rates(const RankGrid& grid, const topology::Topology& topology);

/// Shares that sum to 1, by part, of times by part and dimension, as many of either. Equal ones
/// where none are better, and with more than five dimensions.
std::vector<double> balanced_shares(std::vector<std::vector<double>> times);

/// For BucketOptions::weights, in lowest terms: of an all-gather or reduce-scatter, or both.
std::vector<std::uint32_t> bucket_weights(const RankGrid& grid, const topology::Topology& topology);

/// The same for trees of an all-reduce (grid_trees.hpp), whose links work both ways at once.
std::vector<std::uint32_t> tree_weights(const RankGrid& grid, const topology::Topology& topology);

}  // namespace rackrail::planner
