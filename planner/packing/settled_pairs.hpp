// Trees for all-reduce among many ranks, by multiplicative-weights tree packing.
//
// Model. A pair is a tree that sums at a root and one that broadcasts from there, as in
// priced_packing.hpp, but their number is fixed from the start, and each has an equal share of the
// data. A link that carries the share s of what it could at the bound costs what one more tree adds
// to
//   Σ_l exp(steepness · s_l),
// which with steepness is ever more nearly the fullest link. In turn each pair is taken out and put
// back along the cheapest trees (arborescence.hpp) over paths past no third rank (ways.hpp). So the
// sum falls with every move, and where no pair can move any more, all of them are nearly cheapest
// at the same prices, which is what makes a packing of trees optimal (Plotkin, Shmoys and Tardos,
// "Fast Approximation Algorithms for Fractional Packing and Covering Problems", 1995). Error: about
// a percent where links that bind carry some fifty trees. No program over all links and cuts is
// solved, so that ranks may be many: O(pairs · ranks · arcs) for each round of moves.
//
// Ranks are then given parents that are nearer to the root, where that costs no more than using a
// link that is not quite full: trees are shallow, and links that need not be full are spared.
#pragma once

#include <cstddef>
#include <optional>

#include "planner/packing/joint_forest.hpp"

namespace rackrail::planner {

struct SettledOptions {
  std::size_t pairs = 1;
  double bound = 1;        ///< bytes of the buffer per second that no trees exceed
  double good_enough = 1;  ///< share of it with which nothing better is looked for
  /// Roots are ranks that no other is further from than so many times what the middle has it.
  double most_far = 1.5;
};

struct SettledPairs {
  AllReduceForests forests;    ///< their rate is not set
  bool are_all_roots = false;  ///< none was too far: a larger `most_far` changes nothing
};

/// None where ranks do not reach each other past no third one.
std::optional<SettledPairs> settled_pairs(const topology::Topology& topology,
                                          const SettledOptions& options);

}  // namespace rackrail::planner
