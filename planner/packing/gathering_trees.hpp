// Trees for all-gathers and reduce-scatters among ranks that are linked to one another, of which
// some links may be missing or slow.
//
// From every rank as many trees go along shortest paths, each rank along its emptiest link. Every
// tree enters every other rank once, so however trees go, a rank takes in as much, and what is left
// to do is to divide that among the links into it: a rank gets another parent where the link from
// there would be less full than the one it has, and the tree not much deeper; if that parent is
// below it, that one gets in by another path first. Where the rank with the slowest links of all is
// what binds, as at the corner of a mesh or beside a cable that is lost, that is the optimum; where
// a cut between many ranks is, trees that cross it more than once are moved away from it by the
// same descent. O(trees · links · depth) for each round of moves.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/packing/forest.hpp"

namespace rackrail::planner {

/// Only `routes`, `trees` and `trees_per_rank` of it are filled in: up to so many trees per rank,
/// as few as divide the links well. With `reversed`, trees along which a reduce-scatter sums. None
/// where ranks are not joined directly (cables.hpp), or do not reach each other.
std::optional<Forest> gathering_trees(const topology::Topology& topology,
                                      std::int64_t most_trees_per_rank, bool reversed = false);

}  // namespace rackrail::planner
