// Double binary tree: two trees, each for half of the buffer, so that inner nodes of one are leaves
// of the other and everyone's links carry about the same (Sanders, Speck, Träff, "Two-tree
// algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009).
//
// The first tree is the in-order binary tree over positions 0..n−1: position p > 0 with lowest set
// bit b has its parent at (p ^ b) | 2b, or at p ^ b where that is past the end; 0 is the root. For
// odd n the second tree is the first one shifted by a position, for even n its mirror image.
// Depth is about log₂ n in both directions; slices pipeline through it.
#include <algorithm>

#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

namespace {

struct Tree {
  std::vector<std::size_t> parent;  ///< the root is its own parent
  std::vector<std::vector<std::size_t>> children;
  std::vector<std::size_t> from_root;  ///< positions, parents before children
};

std::size_t in_order_parent(std::size_t position, std::size_t n) {
  if (position == 0) {
    return 0;
  }
  const std::size_t bit = position & (~position + 1);
  const std::size_t up = (position ^ bit) | (bit << 1U);
  return up < n ? up : position ^ bit;
}

Tree make_tree(std::size_t n, bool second) {
  const auto place = [&](std::size_t p) {
    if (!second) {
      return p;
    }
    return n % 2 == 0 ? n - 1 - p : (p + 1) % n;
  };
  Tree tree{std::vector<std::size_t>(n), std::vector<std::vector<std::size_t>>(n), {}};
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

class DoubleBinaryTree final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "double-binary-tree"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (topology.rank_count() < 2) {
      return "one rank alone has nothing to exchange";
    }
    return refuse_lossy_hops(codecs);
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const std::vector<Rank> order = near_order(request.topology);
    const std::size_t n = order.size();
    GraphBuilder builder("double-binary-tree", request, {1, 1});
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
      const Tree tree = make_tree(n, chunk == 1);
      std::vector<std::vector<TransferId>> sums(n);  // into each position
      for (auto it = tree.from_root.rbegin(); it != tree.from_root.rend(); ++it) {
        const std::size_t parent = tree.parent[*it];
        if (parent != *it) {
          sums[parent].push_back(builder.reduce(order[*it], order[parent], {chunk, 1}, sums[*it]));
        }
      }
      std::vector<std::vector<TransferId>> whole(n);  // what brings the result to each position
      whole[tree.from_root[0]] = sums[tree.from_root[0]];
      for (const std::size_t position : tree.from_root) {
        for (const std::size_t child : tree.children[position]) {
          whole[child] = {builder.copy(order[position], order[child], {chunk, 1}, whole[position])};
        }
      }
    }
    return builder.take();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_double_binary_tree() {
  return std::make_unique<DoubleBinaryTree>();
}

}  // namespace rackrail::planner
