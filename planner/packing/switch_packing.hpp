// Trees of switches for an all-reduce by prices of links: as many bytes per second as any carry.
//
// Model. As in priced_packing.hpp, but trees pass switches that reduce or multicast (switch_ways),
// and ranks where that is cheaper: a pair is a tree that sums at a root and one that spreads the
// sum from there, and y_p bytes per second take pair p, Σ_p load(p, e) · y_p ≤ b_e on every link. A
// device that adds what it receives is such a resource too. The optimum over cuts
// (topology::joint_allreduce_bound) is no less than Σ y_p, and may be more: a cut does not see that
// a switch which has a part of the data only cannot pass on more than that. Cheapest trees that may
// pass switches are Steiner trees (steiner_tree.hpp), exact where switches are few.
//
// The result is few trees of unequal shares: those that carry least are left out as long as that
// costs next to nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "planner/packing/switch_operations.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The trees that a share of the data takes, those operations first that others wait for.
struct SwitchPair {
  Rank root;
  std::int64_t units = 0;  ///< its share
  std::vector<SwitchOperation> reduction;
  std::vector<SwitchOperation> broadcast;
};

struct SwitchPacking {
  std::vector<SwitchPair> pairs;
  Bandwidth algbw;  ///< bytes of the buffer per second that links and devices leave room for
};

/// Beyond, searches take too long.
inline constexpr std::size_t kMostRanksOfSwitchTrees = 64;
inline constexpr std::size_t kMostLinksOfSwitchTrees = 4096;

/// The search ends near the bound (99.8 %; 99 % where that takes very many pairs), when nothing
/// better was found for long, or at a limit of work. None above kMostRanksOfSwitchTrees ranks or
/// kMostLinksOfSwitchTrees links, where ranks do not reach each other, or the build has no solver.
std::optional<SwitchPacking> pack_switch_trees(const topology::Topology& topology,
                                               Bandwidth enough);

}  // namespace rackrail::planner
