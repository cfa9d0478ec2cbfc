#pragma once

// Cases that the flow level and the packet level are compared on.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/network_model.hpp"
#include "sim/packet_options.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim::test {

/// One flow per route, all of the same size and starting together.
struct Flows {
  std::string name;
  topology::Topology topology;
  std::vector<std::vector<LinkId>> routes;
  Bytes bytes;
};

/// The shipped fat tree of 128 hosts with racks oversubscribed 2:1; with 1, twice the uplinks.
topology::Topology fat_tree(int oversubscription);
/// Each host of the fat tree sends to one other and receives from one other, at random.
Flows permutation(int oversubscription, Bytes bytes, unsigned seed);
/// Hosts of one switch send to one more.
Flows incast(std::size_t senders, Bytes bytes);
/// The same where the first sender's own link is as wide as its fair share, and those of the others
/// are twice as wide as the receiver's.
Flows uneven_incast(std::size_t senders, Bytes bytes);
/// One flow over `hops` links in a row, each of which it shares with another flow of its own.
Flows parking_lot(std::size_t hops, Bytes bytes);

struct Outcome {
  double makespan = 0;              ///< seconds
  double mean_completion = 0;       ///< seconds
  std::vector<double> completions;  ///< seconds, by flow; of a collective, by message
  std::vector<QueueUse> queues;     ///< of the packet level
};

Outcome on_flow_level(const Flows& flows);
Outcome on_packet_level(const Flows& flows, const PacketOptions& options = {});

struct Comparison {
  std::string name;
  Outcome flow;
  Outcome packet;

  double makespan_ratio() const { return packet.makespan / flow.makespan; }
  double completion_ratio() const { return packet.mean_completion / flow.mean_completion; }
};

Comparison compare(const Flows& flows, const PacketOptions& options = {});

/// An all-reduce of `bytes` per rank on the shipped fat tree, by a schedule of the planner; devices
/// take no time. Completions are those of its messages, slices of 1 MiB at most, from the start of
/// the all-reduce.
Comparison compare_all_reduce(std::string_view schedule, Bytes bytes,
                              const PacketOptions& packets = {});
/// The same on a shipped cluster, as "two-racks-40g".
Comparison compare_on(std::string_view cluster, std::string_view schedule, Bytes bytes,
                      const PacketOptions& packets = {});
/// A ring that visits the hosts in a random order, so that its flows meet on uplinks.
Comparison compare_random_ring(Bytes bytes, unsigned seed, const PacketOptions& packets = {});

/// A ring over a dragonfly of four groups, each of three switches that are joined to each other,
/// with two hosts each; one cable joins two groups. On a cable two of its flows meet at most.
Comparison compare_dragonfly_ring(Bytes bytes, const PacketOptions& packets = {});

/// "| name | … |", and the head of such a table.
std::string table_row(const Comparison& comparison);
std::string table_head();

}  // namespace rackrail::sim::test
