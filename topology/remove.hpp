// What is left of a cluster when parts of it fail or are taken out of service.
#pragma once

#include <span>
#include <string>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// The topology without these machines (all vertices with this `host`, or the vertex of that name)
/// and links. Ranks keep their order and get new numbers. Throws ConfigError for a host that is not
/// there, and when no two ranks are left.
Topology without(const Topology& topology, std::span<const std::string> hosts,
                 std::span<const LinkId> links);

}  // namespace rackrail::topology
