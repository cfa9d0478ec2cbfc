// What many collectives or steps in a row are held to by links that let bursts pass at once
// (Link::burst), and whether one is timed as if they let none.
//
// One after a pause may pass what the bursts hold; of many in a row each fills the buckets that it
// empties, so none takes less, on average, than the busiest link needs for its bytes. And where
// that is many bursts, all schedules that keep that link busy look alike with them, as it makes up
// for each of its pauses, while flows of a transport do not always (results/emulated-racks.md): so
// it is timed without; but for a collective of one message at a time, as there and back over a
// link, which fills while the others are on their way. Of those that take the same, the one is
// shorter whose ranks talk to fewer others: connections of a transport that share a link are seldom
// all under way.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan/transfer_graph.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

struct BurstBound {
  /// At least, on average; where links decide, the more the more messages there are: each takes
  /// something that only shows then.
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
