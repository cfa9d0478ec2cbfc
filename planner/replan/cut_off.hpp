// Who can no longer reach the others when links are lost, and by which of them.
#pragma once

#include <span>

#include "base/ids.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The cluster without these links. Throws ConfigError that names the first of them without which
/// some ranks no longer reach the others there and back, and the machines of the smaller part.
topology::Topology without_links(const topology::Topology& topology, std::span<const LinkId> lost);

}  // namespace rackrail::planner
