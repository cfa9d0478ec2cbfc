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
// a little less.
#pragma once

#include <cstdint>
#include <optional>

#include "planner/packing/joint_forest.hpp"

namespace rackrail::planner {

/// At least this share of what any trees can carry, where it is found in time. None where there is
/// no solver for linear programs, too many ranks, or ranks that do not reach each other.
std::optional<AllReduceForests> pack_by_prices(const topology::Topology& topology,
                                               double good_enough = 1);

}  // namespace rackrail::planner
