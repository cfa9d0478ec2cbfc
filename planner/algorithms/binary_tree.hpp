// The two trees of a double binary tree (Sanders, Speck, Träff, "Two-tree algorithms for full
// bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009).
//
// The first one is the in-order binary tree over positions 0..n−1: position p > 0 with lowest set
// bit b has its parent at (p ^ b) | 2b, or at p ^ b where that is past the end; 0 is the root. For
// odd n the second one is the first shifted by a position, for even n its mirror image, so that
// inner nodes of one are leaves of the other. Depth is about log₂ n.
#pragma once

#include <cstddef>
#include <vector>

namespace rackrail::planner {

struct BinaryTree {
  std::vector<std::size_t> parent;  ///< the root is its own parent
  std::vector<std::vector<std::size_t>> children;
  std::vector<std::size_t> from_root;  ///< positions, parents before children
};

/// Over `n` positions, at least one.
BinaryTree make_binary_tree(std::size_t n, bool second);

}  // namespace rackrail::planner
