// Forests for all-reduce: where halves that share the links unevenly, and roots of unequal shares,
// beat a reduce-scatter followed by an all-gather (topology::joint_allreduce), those.
#pragma once

#include <vector>

#include "planner/packing/forest.hpp"

namespace rackrail::planner {

/// In both forests as many trees start at a rank, which may be none.
struct AllReduceForests {
  Forest reduction;
  Forest broadcast;
  Bandwidth algbw;  ///< bytes of the buffer per second, with links that work in both halves at once
  bool operator==(const AllReduceForests&) const = default;
};

/// That of the busiest link.
void set_rate(AllReduceForests& forests, const topology::Topology& topology);

/// A reduce-scatter and an all-gather of the best rates; then, if their rate is better, forests
/// that share links between the two, few trees before many; the best last. Trees of the first are
/// often shallower and more similar, so which is fastest has to be tried. Throws like make_forest.
std::vector<AllReduceForests> allreduce_forests(const topology::Topology& topology,
                                                const ForestOptions& options = {});

/// Priced trees (priced_packing.hpp) of nearly the best rate: few trees, which uneven clusters send
/// sooner. None above 16 ranks, or where there are none.
std::vector<AllReduceForests> priced_forests(const topology::Topology& topology);

/// Bytes of the buffer per second that no reduce-scatter followed by an all-gather exceeds.
Bandwidth rate_of_halves(const topology::Topology& topology);

/// Above 64 ranks, where that is not near to the optimum: pairs of trees that settle
/// (settled_pairs.hpp), if they are better. At most one. `may_be_many`: as many as ranks up to 256
/// even where 128 are near to what more reach, for graphs of millions of transfers. Throws like
/// make_forest.
std::vector<AllReduceForests> settled_forests(const topology::Topology& topology,
                                              bool may_be_many = false);

/// Those of the best rate: above 64 ranks settled ones, where there are some.
AllReduceForests make_allreduce_forests(const topology::Topology& topology,
                                        const ForestOptions& options = {});

}  // namespace rackrail::planner
