// Trees for an all-reduce along cables, whose sums and copies take the same paths.
//
// A tree that spans all ranks uses each of its cables once in each direction: sums go up and copies
// down, wherever its root is. So trees that fill all cables equally, N - 1 of them each, make the
// fastest all-reduce. Their rate is the least, over all partitions of the ranks, of the rate of the
// cables between parts over the number of parts less one (Tutte, "On the problem of decomposing a
// graph into n connected factors", 1961; Nash-Williams, "Edge-disjoint spanning trees of finite
// graphs", 1961). No all-reduce exceeds that, as all parts but one must send and get what is summed
// up. On meshes and tori with lost or slow cables that is the whole bound. A reduce-scatter and an
// all-gather leave the cables of a rank at the edge idle in one direction, and are far from it.
//
// Search. Trees start as shortest paths from roots near the middle, each rank along its emptiest
// cable. Then a cable that a tree does without takes the place of the fullest one on the way around
// that it closes, if it is emptier: a descent, in which a cable of a tree can be exchanged for
// nearly any near it, so that what is left is a tree or two of some hundred on a cable. No tree
// becomes much deeper. O(trees · cables · depth) for each round of exchanges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/packing/cables.hpp"

namespace rackrail::planner {

struct CableTree {
  std::uint32_t root = 0;
  // By rank; of the root they say nothing.
  std::vector<std::uint32_t> parent;
  std::vector<std::uint32_t> cable;  ///< to the parent
  std::vector<std::uint32_t> depth;
};

struct CableTrees {
  std::vector<CableTree> trees;  ///< of equal shares of the buffer
  double algbw = 0;              ///< bytes of the buffer per second, of the cable that is fullest
};

/// As many trees within the limits as divide the cables best.
CableTrees cable_trees(const RankCables& cables, std::size_t fewest, std::size_t most);

}  // namespace rackrail::planner
