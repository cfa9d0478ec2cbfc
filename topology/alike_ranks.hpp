// Ranks, and links, that a symmetry of the network maps to each other: a max-flow result for one of
// them holds for all.
//
// Two machines are equivalent if swapping them is a symmetry. The swap exchanges their vertices in
// the order of their numbers and leaves everything else where it is. It must keep the capacity
// between every two vertices (links in parallel count together), and map ranks to ranks. It must
// map switches to switches of the same kind with the same ability to add and copy. The same test
// applies to two racks with the switches that are linked to no other. It also applies to the i-th
// and j-th ranks of all machines with what is linked to no others (NICs, the leaves of their
// rails). Each swap is checked link by link, so what is found is a symmetry; not every symmetry is
// found. O(links) for each kind of block that is compared with few others.
#pragma once

#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// By rank: the first rank that is known to be equivalent to it, itself if there is none.
std::vector<Rank> alike_ranks(const Topology& topology);

struct AlikeParts {
  std::vector<Rank> ranks;    ///< by rank: the first one known to be equivalent
  std::vector<LinkId> links;  ///< by link: the first one known to be equivalent
};
/// Fewer equivalent ranks than alike_ranks() where parallel links are equivalent together and not
/// one by one. Take a linear program over links whose data are equal for equivalent links and
/// ranks. It has an optimum with the same property: the mean of one optimum over all of these
/// symmetries.
AlikeParts alike_parts(const Topology& topology);
/// Every rank and link is equivalent to itself only.
AlikeParts only_themselves(const Topology& topology);

}  // namespace rackrail::topology
