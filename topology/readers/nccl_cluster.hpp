// The steps from what an NCCL topology XML says to machines in a Topology.
#pragma once

#include <string>
#include <vector>

#include "topology/readers/fabric.hpp"
#include "topology/readers/nccl_machine.hpp"
#include "topology/readers/overlay.hpp"
#include "topology/topology.hpp"

namespace rackrail::topology {

/// Decides everything that the file leaves open, once for all copies of a machine: what is a GPU,
/// unknown rates, links between GPUs. What was assumed is added to the notes, each sentence once.
/// Throws ConfigError when there is no GPU or the overlay names a device that is not there.
void settle_machine(NcclMachine& machine, const std::string& file, const Overlay& overlay,
                    std::vector<std::string>& notes);

/// Adds one copy of a settled machine; its ports are in the order of its NICs.
std::vector<Port> add_machine(Topology& topology, const HostPlace& place,
                              const NcclMachine& machine, const Overlay& overlay);

}  // namespace rackrail::topology
