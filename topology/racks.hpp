// Racks that a file does not name, told by the switches that ranks hang on.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// By vertex, the rack of each rank: the name of its ToR switch, where every rank has links to one
/// such switch and to nothing else. Empty where that does not hold for all of them (ranks with
/// several rails, or behind NICs): then switches say nothing about racks.
std::vector<std::string> racks_by_tor(const Topology& topology);

/// Names racks by racks_by_tor() where no vertex has one.
void name_racks(Topology& topology);

}  // namespace rackrail::topology
