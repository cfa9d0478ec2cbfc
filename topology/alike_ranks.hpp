// Ranks, and links, that a symmetry of the network takes to each other: what a max-flow says of one
// of them it says of all.
//
// Two machines are alike when swapping them, vertex by vertex in the order of their numbers, and
// leaving everything else where it is keeps the capacity between every two vertices (links in
// parallel count together), takes ranks to ranks, and switches to such of the same kind that add
// and copy alike. The same of two racks with the switches that are linked to no other, and of the
// i-th and j-th ranks of all machines with what is linked to no others (NICs, the leaves of their
// rails). Each such swap is checked link by link, so what is found is a symmetry; not every
// symmetry is found. O(links) for each kind of block that is compared with few others.
#pragma once

#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// By rank: the first rank that it is known to be alike to, itself if there is none.
std::vector<Rank> alike_ranks(const Topology& topology);

struct AlikeParts {
  std::vector<Rank> ranks;    ///< by rank: the first one that it is known to be alike to
  std::vector<LinkId> links;  ///< by link: the first one that it is known to be alike to
};
/// Fewer than alike_ranks() where links in parallel are alike together and not one by one. A linear
/// program over links whose data are alike for alike links and ranks has an optimum that is, too:
/// the mean of one over all of these symmetries.
AlikeParts alike_parts(const Topology& topology);
/// Nothing is like anything else.
AlikeParts only_themselves(const Topology& topology);

}  // namespace rackrail::topology
