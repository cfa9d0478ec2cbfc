// From a network of units to a forest: switches removed, trees packed, routes given.
#pragma once

#include <optional>

#include "planner/forest/forest.hpp"
#include "planner/forest/logical_network.hpp"

namespace rackrail::planner {

/// Up to so many ranks switches are removed exactly where guesses fail; it takes seconds there.
inline constexpr std::size_t kMostRanksExactly = 48;

/// All the trees that the network asks for, or nothing where they were not found. The network's
/// vertices are the nodes of `topology`, its arcs those of its links, turned round with `reversed`.
/// Only `routes` and `trees` of the answer are filled in. Exact methods are tried after guesses
/// with `try_exactly`, for tens of ranks.
std::optional<Forest> build_forest(const LogicalNetwork& network,
                                   const topology::Topology& topology, bool reversed,
                                   bool try_exactly);

/// Units of trees over each link.
std::vector<std::int64_t> loads_of(const Forest& forest, std::size_t links);

}  // namespace rackrail::planner
