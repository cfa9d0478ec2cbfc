// Uses the symmetry of a schedule to simulate only one of many symmetric parts.
//
// A schedule consists of send queues (Lane). In a ring over racks of 32 hosts, queue i + 32 does
// what queue i does, over other links with the same properties. Let a shift of all queues by p map
// the links they use one to one onto links of equal rate, latency and overhead, and ranks onto
// ranks with equal devices. Then every flow has the rate of its image at all times (max–min fair
// rates are unique). Queues l, l + p, l + 2p … therefore do the same at the same times, to the
// picosecond. So p queues are enough: each link represents its orbit, the links it is mapped onto.
// A flow over one of them must then meet on it exactly the flows it meets in full. That is so if
// every orbit has as many links as there are shifts (no link is mapped onto itself before all
// shifts are done), and no route uses two links of one orbit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plan/regular_schedule.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

struct FoldedSchedule {
  std::unique_ptr<plan::RegularSchedule> schedule;
  std::vector<RouteUse> routes;    ///< of its send queues, over the first link of each orbit
  std::uint32_t copies = 1;        ///< send queues of the full schedule per queue of this one
  std::vector<LinkId> stands_for;  ///< by link: the first link of its orbit, else itself
};

/// The smallest fold of a schedule with `elements` floats per rank, whose send queue l takes
/// `routes[l]`. None if chunks differ in size, ranks have processors, or nothing is symmetric.
/// O(queues · route length) per divisor of the number of queues.
std::optional<FoldedSchedule> fold(const plan::RegularSchedule& schedule, std::int64_t elements,
                                   const std::vector<RouteUse>& routes,
                                   const topology::Topology& topology,
                                   const SimulationOptions& options);

}  // namespace rackrail::sim
