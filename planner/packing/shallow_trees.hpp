// Shallow trees by giving ranks other parents.
//
// Model. Every rank has its trees, and each tree is an arc into every other rank: a parent and a
// path from there (ways.hpp). At first all trees are stars. Then, rank by rank and tree by tree,
// the arc is replaced by the one that costs least, of those from ranks that are not behind it and
// not too deep: what it adds to
//   Σ_l (load of l / what l may carry)^32.
// A sum so steep is nearly the fullest link, so loads become even where they are high, and where a
// link is not nearly full nothing but depth counts: of arcs that cost the same the shallowest is
// taken. Parts of a tree move with the rank at their top.
//
// It is a descent, without proof. On clusters whose hosts are as narrow as anything else every rank
// must send as much as it receives, and about n parents are possible for each arc, so loads become
// nearly even. Edge splitting (switch_removal.hpp) would leave few pairs that may be neighbours,
// and trees become paths. O(trees · n²) for each round of moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "planner/packing/forest.hpp"

namespace rackrail::planner {

struct ShallowOptions {
  std::int64_t trees_per_rank = 1;
  double trees_per_byte = 0;  ///< trees that a link of one byte per second carries at the bound
  double good_enough = 0.98;  ///< share of the bound
  std::size_t most_depth = 0;
};

/// Only `routes` and `trees` of it are filled in. None where what was found is not good enough, or
/// ranks do not reach each other past no third one.
std::optional<Forest> shallow_trees(const topology::Topology& topology, bool reversed,
                                    const ShallowOptions& options);

}  // namespace rackrail::planner
