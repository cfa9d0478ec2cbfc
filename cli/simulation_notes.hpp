// What a simulation leaves out or assumes because the cluster does not say it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/workload.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// One sentence each: shares of cores that messages cost (Link::cpu_share) where no machine has a
/// processor to charge, GPUs whose class is none of plan/device_class.hpp, and bursts of links
/// (Link::burst) at the packet level, which has none.
std::vector<std::string> simulation_notes(const topology::Topology& cluster,
                                          sim::NetworkLevel level);

/// Where ranks have no device class: that the workload's compute times are taken as profiled. None
/// where the profile does not say on what.
std::optional<std::string> unscaled_compute_note(const topology::Topology& cluster,
                                                 const plan::Workload& workload);

}  // namespace rackrail::cli
