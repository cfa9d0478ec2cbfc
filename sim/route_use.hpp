// What an index keeps of a route.
#pragma once

#include <span>

#include "sim/graph_index.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

RouteUse route_use(const topology::Topology& topology, std::span<const LinkId> links);

}  // namespace rackrail::sim
