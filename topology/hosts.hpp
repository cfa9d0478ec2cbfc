// Hosts that a file does not name, told by the NVSwitches and NVLinks that join GPUs.
//
// An edge list of GPUs that are each on an NVSwitch and on a rail, or meshed by NVLinks and on a
// rail, says what is inside a machine only by these. A host is what NVSwitches and links of kind
// `nvlink` join: the GPUs on them and, from these on, adapters, PCIe switches and CPU sockets.
// Other links from GPU to GPU, and from adapter to adapter, may lead from one machine to another
// and join nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// By vertex, the host of what is inside one: the name of its first NVSwitch or, without any, of
/// its first GPU; empty elsewhere. Empty altogether where no host has two ranks, where one has all
/// of them, and where somebody named a host. O((vertices + links) log vertices).
std::vector<std::string> hosts_by_structure(const Topology& topology);

/// Names hosts by hosts_by_structure(). Returns how many.
std::size_t name_hosts(Topology& topology);

}  // namespace rackrail::topology
