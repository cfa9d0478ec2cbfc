// Few trees per rank, of unequal shares of its data.
//
// Equal shares are whole numbers of units, and a few units do not divide all links well. Given the
// trees of some forests, a linear program finds the shares at which the fullest link has least to
// carry; then the thinnest tree of every rank that has too many is left out, and the program solved
// again, until none has. Shares of a vertex of the program are few to begin with: as many as it has
// ranks and full links.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "planner/packing/forest.hpp"

namespace rackrail::planner {

/// With at most `most_per_rank` trees from every rank, of those in `pool`, in which every rank must
/// have one; shares are multiples of 1/Forest::trees_per_rank. Rates are not set. None where the
/// build has no solver.
std::optional<Forest> unequal_trees(const topology::Topology& topology,
                                    const std::vector<Forest>& pool, std::size_t most_per_rank);

}  // namespace rackrail::planner
