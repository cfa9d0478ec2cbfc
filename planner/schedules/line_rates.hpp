// How fast the members of groups (hosts) that are on one line reach each other (group_rings.hpp).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Bytes per second by line, then group.
using LineRates = std::vector<std::vector<double>>;

/// Bytes per second of each line from one group to another while all lines send that need no third
/// rank's help; 0 for those that do.
std::vector<double> rates_between(const topology::Topology& topology, topology::Router& router,
                                  const topology::RankGroup& from, const topology::RankGroup& to,
                                  std::size_t lines);

/// Of each group's member both ways, to and from the group that it reaches best.
LineRates line_rates(const topology::Topology& topology, topology::Router& router,
                     std::span<const topology::RankGroup> groups, std::size_t lines);

}  // namespace rackrail::planner
