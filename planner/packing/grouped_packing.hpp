// Trees packed tier by tier: over racks, inside each rack over hosts, inside each host over ranks.
//
// Where a tree enters each group once, packing divides: trees over the groups, taken as single
// vertices, say where each enters a group, and inside it trees start there. That a set whose inward
// capacity is just what it needs is entered once by every tree is how the existence of the trees is
// proved (Edmonds' condition is modular on such sets); groups of real clusters mostly are such
// sets, or can be made so by leaving capacity unused. Each part is small, its trees are shallow,
// and equal hosts are equal problems.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/packing/logical_network.hpp"
#include "planner/packing/tree_packing.hpp"

namespace rackrail::planner {

/// Groups of terminals at one tier: a number for each vertex of the network.
using Grouping = std::vector<std::uint32_t>;

/// All trees of a network without switches, or nothing where this way does not find them. `tiers`
/// are outer groups first; each lies within one of the tier before.
std::optional<std::vector<TreeBundle>> pack_by_tiers(const LogicalNetwork& network,
                                                     const std::vector<Grouping>& tiers);

}  // namespace rackrail::planner
