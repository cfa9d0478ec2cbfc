// A part of a cluster as a cluster of its own.
#pragma once

#include <span>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// The vertices that are marked (by NodeId), the links between them, and as ranks the vertices of
/// `ranks`, numbered in the order in which they are given: for a job on some of the GPUs. Ranks
/// that are not listed may stay as mere vertices. Precondition: every listed rank's vertex is
/// marked, and no rank is listed twice.
Topology part_of(const Topology& topology, const std::vector<bool>& is_kept,
                 std::span<const Rank> ranks);

}  // namespace rackrail::topology
