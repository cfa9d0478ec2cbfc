#pragma once

// Cases that the flow level and the packet level are compared on.

#include <cstdint>
#include <string>
#include <vector>

#include "sim/network_model.hpp"
#include "sim/packet_options.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim::test {

struct Case {
  std::string name;
  topology::Topology topology;
  std::vector<std::vector<LinkId>> routes;  ///< one flow each, all starting at time 0
  Bytes bytes;                              ///< of each flow
};

/// Every host of the shipped fat tree sends to another one and receives from another one.
/// `oversubscription` is that of the racks: 2 as shipped, or 1 for full bisection.
Case permutation(int oversubscription, Bytes bytes, unsigned seed);
/// Hosts of one switch send to one more.
Case incast(std::size_t senders, Bytes bytes);

struct Outcome {
  Time makespan = 0;
  double mean_completion = 0;  ///< picoseconds
  std::vector<Time> completions;
};

Outcome run_flow_level(const Case& flows);
Outcome run_packet_level(const Case& flows, const PacketOptions& options,
                         std::vector<QueueUse>* queues);

}  // namespace rackrail::sim::test
