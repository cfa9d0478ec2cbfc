// The steps from what a file says about machines to a Topology.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "topology/reader.hpp"
#include "topology/readers/fabric.hpp"
#include "topology/readers/nccl_machine.hpp"
#include "topology/readers/overlay.hpp"
#include "topology/topology.hpp"

namespace rackrail::topology {

/// The overlay, with the device class of the options in place of its own. Throws ConfigError.
Overlay overlay_of(const ReadOptions& options);

/// The machines of the file, as often as the overlay says, joined by its network. Throws
/// ConfigError.
ReadResult cluster_of_machines(const std::filesystem::path& path, NcclFile file,
                               const ReadOptions& options);

/// Decides everything that the file leaves open, once for all copies of a machine: what is a GPU,
/// unknown rates, links between GPUs. What was assumed is added to the notes, each sentence once.
/// Throws ConfigError when there is no GPU or the overlay names a device that is not there.
void settle_machine(NcclMachine& machine, const std::string& file, const Overlay& overlay,
                    std::vector<std::string>& notes);

/// Adds one copy of a settled machine; its ports are in the order of its NICs.
std::vector<Port> add_machine(Topology& topology, const HostPlace& place,
                              const NcclMachine& machine, const Overlay& overlay);

}  // namespace rackrail::topology
