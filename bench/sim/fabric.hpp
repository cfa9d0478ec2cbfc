// The network that the benchmarks share: hosts on leaves with full bisection.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::bench {

/// 32 hosts a leaf at 100 Gbit/s each, one spine per host of a leaf. Hosts are ranks in order.
struct Fabric {
  static constexpr std::size_t kHostsPerLeaf = 32;

  /// Host links have a latency of 1 us.
  explicit Fabric(std::size_t hosts, Duration spine_latency = 1_us);
  /// Over spine `salt` mod 32, as a hash of the flow would choose it.
  std::vector<LinkId> route(std::size_t from, std::size_t to, std::size_t salt) const;

  topology::Topology topology{"leaf and spine"};
  std::vector<LinkId> up;                      ///< host → leaf; the next link is the way back
  std::vector<LinkId> down;                    ///< leaf → host
  std::vector<std::vector<LinkId>> leaf_up;    ///< by leaf and spine
  std::vector<std::vector<LinkId>> leaf_down;  ///< by leaf and spine
};

/// Hosts of eight GPUs on an NVSwitch, 450 GB/s each way, and a 400 Gbit/s NIC for each GPU; 32
/// hosts share eight leaves, one per NIC, and all leaves of a number share 32 spines.
topology::Topology rail_fabric(std::size_t hosts);

}  // namespace rackrail::bench
