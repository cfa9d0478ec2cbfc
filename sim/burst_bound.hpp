// A bound on the mean time of many collectives or steps in a row, set by links that let bursts pass
// at once (Link::burst, a token bucket), and whether a collective is timed as if there were no
// bursts.
//
// A collective after a pause may pass what the buckets hold. Of many in a row, each has to refill
// the buckets that it empties. So none takes less, on average, than the busiest link needs for its
// bytes. Where that time is many bursts, all schedules that keep that link busy seem equally fast
// in a simulation with bursts, as the link makes up for each of its pauses. Flows of a transport do
// not always make up for them (results/emulated-racks.md), so such a collective is timed without
// bursts. The exception is a collective of one message at a time, as a round trip over a link: each
// bucket fills while messages are on other links. Of schedules that take equally long, the one
// whose ranks talk to fewer others is the shorter one: connections of a transport that share a link
// are seldom all in progress.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan/transfer_graph.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

struct BurstBound {
  /// A lower bound on the mean time. Where links decide, it grows with the number of messages: each
  /// takes something that only shows then.
  Duration in_a_row;
  /// Bursts in the time of the busiest link that has them, and no collective of one message at a
  /// time.
  bool are_many = false;
  /// What connections add to the time, by the share of the ordered pairs of ranks that have one.
  /// Too little to prefer what is predicted to be slower by more than kMostOfConnections.
  double connections = 0;
};

inline constexpr double kMostOfConnections = 0.005;

/// Whether there are bursts, and what links carry is known beforehand: messages go as pinned, at
/// rates that stay.
bool has_burst_bounds(const topology::Topology& topology, const SimulationOptions& options);

/// Of one collective.
BurstBound burst_bound(const plan::TransferGraph& graph, std::int64_t elements,
                       std::int64_t slice_elements, const topology::Topology& topology);
/// Of a step: of all its buckets together. `plan` is one for the topology.
BurstBound burst_bound(const plan::Plan& plan, const topology::Topology& topology);

topology::Topology without_bursts(const topology::Topology& topology);

}  // namespace rackrail::sim
