// Spanning trees in a network without switches, as many from each root as asked for.
//
// Model. n vertices, capacities c(x, y) as a matrix, u(r) trees rooted at each vertex r; each tree
// spans all vertices and takes one unit of every arc it uses. Trees of one shape form a bundle.
//
//  - quickly: bundles grow breadth first by the widest arcs that are left, and are divided where an
//    arc is too narrow for all. Nothing is looked ahead, so it can end in a dead end although trees
//    exist; where it ends well, the trees are there. O(n²) per bundle.
//  - exactly: an arc is taken by as many trees as leave room for the others, which is a max-flow
//    (Edmonds 1973; the test with one auxiliary source per unfinished tree is that of Zhao et al.,
//    "ForestColl", arXiv 2402.06787). Finds the trees whenever they exist.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace rackrail::planner {

struct PackingProblem {
  std::size_t size = 0;
  std::vector<std::int64_t> capacity;  ///< from x to y at x · size + y
  std::vector<std::int64_t> roots;     ///< trees that start at each vertex
};

/// Trees of one shape.
struct TreeBundle {
  std::uint32_t root = 0;
  std::int64_t units = 0;
  /// (parent, child), parents before children, one for every vertex but the root.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> arcs;
};

std::optional<std::vector<TreeBundle>> pack_quickly(const PackingProblem& problem);
std::optional<std::vector<TreeBundle>> pack_exactly(const PackingProblem& problem);

}  // namespace rackrail::planner
