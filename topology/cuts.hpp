// Cuts of a topology and the flow network that finds them. Links of kind `shared` are resources of
// a machine, not connections, and take no part.
#pragma once

#include <vector>

#include "topology/flow_network.hpp"
#include "topology/queries.hpp"

namespace rackrail::topology {

/// The topology's vertices, with the same numbers, and its links with their bandwidths times
/// `scale`; with `reversed`, every link turned round. Link i is arc 2i, whatever its kind.
FlowNetwork flow_network_of(const Topology& topology, Capacity scale = 1, bool reversed = false);

/// The cut whose source side are the vertices marked; `reversed` as above, in which case the links
/// listed are those that enter the side.
Cut cut_around(const Topology& topology, const std::vector<bool>& source_side,
               bool reversed = false);

/// Throws ConfigError unless there are two ranks and all reach each other.
void require_collective(const Topology& topology);

}  // namespace rackrail::topology
