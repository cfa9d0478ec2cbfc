// Ports at which a coordinator can be found again after it was killed.
//
// The kernel gives the ports of its ephemeral range (ip_local_port_range of ip(7)) to any socket
// that connects, and so it may give the coordinator's while nobody listens there: to a worker that
// looks for it, even, which TCP then connects to itself. Below that range it takes none unasked.
#pragma once

#include <cstdint>
#include <vector>

namespace rackrail::runtime {

/// Some ports below this machine's ephemeral range in a random order, none of them below 10000,
/// where services have theirs; empty where that range leaves no room.
std::vector<std::uint16_t> lasting_ports();

}  // namespace rackrail::runtime
