// How ranks nest: in parts of a machine, machines, racks, pods.
#pragma once

#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// Partitions of the ranks from the inside out; every group is a union of several of the groups
/// before (single ranks at first) or is one of them, and the last partition is one group of all.
/// Candidates, in this order, are what is left connected of each machine without its CPUs (GPUs on
/// one PCIe switch, or linked by NVLink), hosts, racks by name, what is left connected of the
/// network without spine and core switches (racks that have no names), and without core switches
/// (pods). Left out is what joins nothing, and what parts a group that was taken before. Groups
/// and their ranks are in the order of ranks, and have the name of a host, a rack, or their first
/// rank's vertex. O(vertices + links) but for the union-find.
std::vector<std::vector<RankGroup>> nested_groups(const Topology& topology);

}  // namespace rackrail::topology
