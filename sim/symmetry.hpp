// Simulating one of many parts of a schedule that cannot be told apart.
//
// In a ring over racks of 32 hosts, lane i + 32 does what lane i does, over other links that are
// like the first one's. If turning all lanes by p maps the links they use one to one onto links of
// equal rate, latency and overhead, and ranks onto ranks with equal devices, then every flow has
// the rate of its image at all times (max–min fair rates are unique), and all lanes l, l + p,
// l + 2p … do the same at the same times, to the picosecond. So p lanes are enough: each link
// stands for its orbit, the links it is mapped onto. A flow over one of them must then meet on it
// exactly the flows it meets in full: that is so if every orbit has as many links as there are
// turns (no link is mapped onto itself before all turns are done), and no route uses two links of
// one orbit.
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
  std::vector<RouteUse> routes;    ///< of its lanes, over the first link of each orbit
  std::uint32_t copies = 1;        ///< lanes of the full schedule per lane of this one
  std::vector<LinkId> stands_for;  ///< by link: the first link of its orbit, else itself
};

/// The smallest fold of a schedule with `elements` floats per rank, whose lane l takes `routes[l]`;
/// none if chunks differ in size, ranks have processors, or nothing is symmetric. O(lanes · route
/// length) per divisor of the number of lanes.
std::optional<FoldedSchedule> fold(const plan::RegularSchedule& schedule, std::int64_t elements,
                                   const std::vector<RouteUse>& routes,
                                   const topology::Topology& topology,
                                   const SimulationOptions& options);

}  // namespace rackrail::sim
