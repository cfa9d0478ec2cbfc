// What a simulation leaves out or assumes because the cluster does not say it.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::cli {

/// One sentence each: shares of cores that messages cost (Link::cpu_share) where no machine has a
/// processor to charge, and GPUs whose class is none of plan/device_class.hpp.
std::vector<std::string> simulation_notes(const topology::Topology& cluster);

}  // namespace rackrail::cli
