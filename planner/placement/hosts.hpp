// The machines of a cluster, and which of a machine's GPUs a job takes in which order.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::planner {

/// A machine and its ranks: in near order, later only those that the job takes.
struct Host {
  std::string name;
  std::string rack;
  std::vector<NodeId> vertices;  ///< ascending
  std::vector<Rank> ranks;
  Bandwidth out;           ///< what all its ranks together can send to the network, by max-flow
  Bandwidth in;            ///< and receive
  Bandwidth narrowest_in;  ///< of the rank into which the least can flow
  Bandwidth narrowest_out;
};

/// All machines in order of their first rank; a rank without a host is a machine of its own. Ranks
/// are ordered by NUMA node, PCIe switch and NIC (the nearest of each over PCIe), then by number:
/// so neighbours in a ring share as much of the machine as they can, and rank i of like machines is
/// on the same rail.
std::vector<Host> hosts_of(const topology::Topology& topology);

/// Leaves `count` of the host's ranks and fills in its bandwidths: the ranks that together send and
/// receive most over the network (where the job has several hosts), then those with the best
/// all-gather among themselves, then the first. All subsets are compared up to some thousands of
/// them, else the first ranks are taken.
void take_ranks(const topology::Topology& topology, Host& host, std::size_t count,
                bool has_network);

}  // namespace rackrail::planner
