// Trees for all-reduce by prices of links: as many bytes per second as any trees can carry.
//
// Model. A pair is a tree that sums at a root and one that broadcasts from there; y_p ≥ 0 bytes per
// second take pair p. The most that links allow is a linear program: maximise the sum Σ y_p subject
// to Σ_p load(p, e) · y_p ≤ b_e on every link e, which has more columns than can be written down.
// Its dual gives each link a price π_e ≥ 0 such that no pair is cheaper than 1 and Σ b_e π_e is
// least; a pair that is cheaper at the prices found with some pairs is one to add (Gilmore and
// Gomory, "A Linear Programming Approach to the Cutting-Stock Problem", 1961). The cheapest pair of
// a root is two cheapest trees (arborescence.hpp) over paths that pass switches but no rank. Prices
// p with a cheapest pair of c < 1 prove that Σ b_e π_e / c is not exceeded, so the search knows how
// near it is. It looks between the last prices and the best proof so far, where cuts are deeper
// (Wentges, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming", 1997).
//
// Where several trees are as cheap, shallow ones are taken: arcs that lead away from the root cost
// a little less. Optimal rates are many, and a solver's are those of a corner, at which links that
// need not bind are full, too; flows that meet on full links hold each other up. So links that no
// proof counts on can be made narrower, and wider again step by step as far as the rate needs it.
//
// Links are shared evenly by those who send over them. Trees that give a pair of ranks more than it
// gets so leave others done early and their links empty at the end. With fair shares
// (PricedOptions::fair_lanes) every pair of ranks that a path joins is a resource, too: of what it
// would get if all pairs sent at once.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/packing/joint_forest.hpp"

namespace rackrail::planner {

enum class TreeShape : std::uint8_t {
  kAny,
  kTiered,  ///< planner/packing/tiered_trees.hpp
};

struct PricedOptions {
  /// At least this share of what any trees of the shape can carry, where it is found in time.
  double good_enough = 1;
  TreeShape shape = TreeShape::kAny;
  bool spares_links = false;  ///< links that need not be full are not
  bool fair_lanes = false;    ///< pairs carry no more than links shared evenly give them
};

/// None where there is no solver for linear programs, too many ranks, or ranks that do not reach
/// each other; or, of tiered trees, where no host has several ranks.
std::optional<AllReduceForests> pack_by_prices(const topology::Topology& topology,
                                               const PricedOptions& options);

}  // namespace rackrail::planner
