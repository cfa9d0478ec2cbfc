// How ranks nest: in parts of a machine, machines, racks, pods.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// Partitions of the ranks from the inside out. Every group is a union of several of the groups
/// before (single ranks at first) or is one of them, and the last partition is one group of all.
/// There are five candidates, in this order. First, the connected parts of each machine without its
/// CPUs (GPUs on one PCIe switch, or linked by NVLink). Then hosts, then racks by name. Then the
/// connected parts of the network without spine and core switches (racks that have no names), and
/// without core switches (pods). A candidate is left out if it joins nothing, or splits a group
/// that was taken before. Groups and their ranks are in the order of ranks, and have the name of a
/// host, a rack, or their first rank's vertex. O(vertices + links), without the union-find.
std::vector<std::vector<RankGroup>> nested_groups(const Topology& topology);

/// What is left connected of the network, machines included, without spine and core switches (racks
/// and the switches on top of them), or with spines and without core switches (pods): by vertex a
/// number, of those that have ranks from 0 on in the order of their first ranks; kNoPart elsewhere.
inline constexpr std::uint32_t kNoPart = UINT32_MAX;
std::vector<std::uint32_t> network_parts(const Topology& topology, bool with_spines);

}  // namespace rackrail::topology
