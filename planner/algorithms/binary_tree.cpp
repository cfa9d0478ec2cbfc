#include "planner/algorithms/binary_tree.hpp"

namespace rackrail::planner {

namespace {

std::size_t in_order_parent(std::size_t position, std::size_t n) {
  if (position == 0) {
    return 0;
  }
  const std::size_t bit = position & (~position + 1);
  const std::size_t up = (position ^ bit) | (bit << 1U);
  return up < n ? up : position ^ bit;
}

}  // namespace

BinaryTree make_binary_tree(std::size_t n, bool second) {
  const auto place = [&](std::size_t p) {
    if (!second) {
      return p;
    }
    return n % 2 == 0 ? n - 1 - p : (p + 1) % n;
  };
  BinaryTree tree{std::vector<std::size_t>(n), std::vector<std::vector<std::size_t>>(n), {}};
  for (std::size_t p = 0; p < n; ++p) {
    const std::size_t parent = in_order_parent(p, n);
    tree.parent[place(p)] = place(parent);
    if (parent != p) {
      tree.children[place(parent)].push_back(place(p));
    }
  }
  tree.from_root = {place(0)};
  for (std::size_t i = 0; i < tree.from_root.size(); ++i) {
    const auto& children = tree.children[tree.from_root[i]];
    tree.from_root.insert(tree.from_root.end(), children.begin(), children.end());
  }
  return tree;
}

}  // namespace rackrail::planner
