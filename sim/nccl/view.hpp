// The links of a Machine at the rates and latencies of one algorithm and protocol, as a topology
// that the simulator runs on.
//
// Each GPU has a port in each direction to its host's hub; each host an egress and an ingress,
// joined by a link per pair of hosts that talks, with that pair's share of the fabric:
//
//   gpu → hub → gpu                        inside a host
//   gpu → out → wire → (pair) → in → gpu   between hosts
//
// Ranks are numbered host by host. Rates are those of payload: nominal · efficiency · the
// protocol's share. Latency and overhead of a hop are NCCL's (parameters.hpp).
#pragma once

#include <span>
#include <vector>

#include "sim/nccl/machine.hpp"
#include "sim/nccl/parameters.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim::nccl {

/// `pairs` are the pairs of hosts whose GPUs exchange data; others have no way to each other.
topology::Topology make_view(const Machine& machine, std::span<const HostPair> pairs,
                             Algorithm algorithm, Protocol protocol, const Parameters& parameters);

/// Payload rate of a GPU's port. For NVLS it is what its schedule sees: that moves the n−1 foreign
/// n-ths of the buffer through a port twice in each direction, to be summed and to be copied, where
/// the real port carries n n-ths towards the adding switch and one result (out), one sum and n
/// multicast n-ths (in): so 2(n−1)/(n+1) of its rate.
double port_payload_Bps(double nominal_Bps, std::size_t gpus, Algorithm algorithm,
                        Protocol protocol, const Parameters& parameters);

}  // namespace rackrail::sim::nccl
