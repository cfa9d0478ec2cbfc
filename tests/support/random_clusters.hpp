// Clusters of no particular kind, by seed: what bounds and schedules are held against that were
// tuned on others.
#pragma once

#include <cstdint>

#include "topology/topology.hpp"

namespace rackrail::test {

/// In turn by seed: hosts of a few GPUs with NICs of several rates or none, on some rails; racks of
/// hosts with unlike NICs under one core; a leaf-spine fabric with unlike, lost or narrow cables;
/// pods of racks; a mesh or torus with slow or lost cables. Of 6 to 64 ranks.
topology::Topology random_cluster(std::uint64_t seed);

}  // namespace rackrail::test
