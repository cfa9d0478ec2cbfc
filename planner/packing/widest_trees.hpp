// Few wide trees from every rank, one after the other in what those before have left of the links.
//
// A rank's trees may take paths of very different widths. Forests of equal units use all of them by
// trees that change between them, of which none is a single path. Here the widest tree comes first:
// from its root it grows along the widest path, past switches, to a rank that it does not have yet
// (as Prim's algorithm does; each use of a link leaves the next as much less of it); then it takes
// what its narrowest link allows, and the next tree begins. Between two ranks that is a flow's
// decomposition into paths by the widest (Ahuja, Magnanti and Orlin, "Network Flows", 1993, 3.5).
// The trees are no forest of the best rate, but columns for a program that finds shares
// (unequal_trees.hpp).
#pragma once

#include <cstddef>

#include "planner/packing/forest.hpp"

namespace rackrail::planner {

/// At most `most_per_rank` trees from every rank, each as if its root had all links to itself, in
/// units that say nothing; fewer where links are used up. With `reversed`, trees along which is
/// summed, as in make_forest. Ranks that do not reach all others have none.
Forest widest_trees(const topology::Topology& topology, std::size_t most_per_rank,
                    bool reversed = false);

}  // namespace rackrail::planner
