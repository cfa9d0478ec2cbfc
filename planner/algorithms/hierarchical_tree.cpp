// Hierarchical all-reduce with double binary trees between the groups, for very many of them: its
// size grows with the number of ranks, not with their square, and its depth with the logarithm of
// the number of groups.
//
// With k groups of g ranks the buffer has 2g chunks. Chunks 2l and 2l + 1 are summed inside each
// group at its member l; across the groups the members l form a double binary tree
// (binary_tree.hpp), the first tree for chunk 2l, the second for 2l + 1, so each moves 2/g of the
// buffer in either direction as in a flat double tree over k ranks; then member l gives the sums
// back. That is 4g(g−1)k transfers inside and 4g(k−1) across: half a million for 2,048 groups of 8.
// Chunks are the same in all phases, so slices pipeline through them.
#include "planner/algorithms/binary_tree.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

class HierarchicalTree final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "hierarchical-tree"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (auto uneven = refuse_uneven_groups(topology)) {
      return uneven;
    }
    // Between groups partial sums take several hops, inside them one; but what comes back through
    // two codecs would leave other bits where it was encoded once only.
    const TierCodecs between{codecs.across, codecs.across};
    return refuse_lossy_hops(codecs.inside.is_lossy() ? codecs : between);
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    const auto groups = tier_groups(topology);
    const std::uint64_t k = groups.size();
    const std::uint64_t g = groups[0].ranks.size();
    const std::uint64_t transfers = 4 * g * (g - 1) * k + 4 * g * (k - 1);
    return {transfers, transfers};
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const auto groups = tier_groups(request.topology);
    const std::size_t k = groups.size();
    const std::size_t g = groups[0].ranks.size();
    const BinaryTree trees[] = {make_binary_tree(k, false), make_binary_tree(k, true)};
    GraphBuilder builder("hierarchical-tree", request, std::vector<std::uint32_t>(2 * g, 1));
    const auto rank = [&](std::size_t group, std::size_t member) {
      return groups[group].ranks[member];
    };
    const auto range = [](std::size_t member, std::size_t half) {
      return GraphBuilder::Range{static_cast<std::uint32_t>(2 * member + half), 1};
    };
    const auto slot = [&](std::size_t group, std::size_t member, std::size_t half) {
      return (group * g + member) * 2 + half;
    };
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t m = 0; m < g; ++m) {
        for (std::size_t offset = 1; offset < g; ++offset) {
          builder.find_route(rank(i, m), rank(i, (m + offset) % g));
        }
      }
    }
    // What the sum of a chunk at (group, member) waits for, then what its result there does.
    std::vector<std::vector<TransferId>> into(2 * g * k);
    for (std::size_t offset = 1; offset < g; ++offset) {
      for (std::size_t i = 0; i < k; ++i) {
        for (std::size_t m = 0; m < g; ++m) {
          const std::size_t l = (m + offset) % g;
          for (const std::size_t half : {0, 1}) {
            into[slot(i, l, half)].push_back(
                builder.reduce(rank(i, m), rank(i, l), range(l, half), {}));
          }
        }
      }
    }
    for (const std::size_t half : {0, 1}) {
      const BinaryTree& tree = trees[half];
      for (auto i = tree.from_root.rbegin(); i != tree.from_root.rend(); ++i) {
        const std::size_t parent = tree.parent[*i];
        for (std::size_t l = 0; l < g && parent != *i; ++l) {
          const TransferId id =
              builder.reduce(rank(*i, l), rank(parent, l), range(l, half), into[slot(*i, l, half)]);
          into[slot(parent, l, half)].push_back(id);
        }
      }
      const std::size_t root = tree.from_root[0];
      std::vector<std::vector<TransferId>> leaving_root(g);
      for (const std::size_t i : tree.from_root) {
        for (const std::size_t child : tree.children[i]) {
          for (std::size_t l = 0; l < g; ++l) {
            const TransferId id =
                builder.copy(rank(i, l), rank(child, l), range(l, half), into[slot(i, l, half)]);
            into[slot(child, l, half)] = {id};
            if (i == root) {
              leaving_root[l].push_back(id);
            }
          }
        }
      }
      // A copy inside must see what the copies across made of the value, so it comes after them.
      for (std::size_t l = 0; l < g; ++l) {
        into[slot(root, l, half)] = leaving_root[l];
      }
    }
    for (std::size_t offset = 1; offset < g; ++offset) {
      for (const std::size_t half : {0, 1}) {
        for (const std::size_t i : trees[half].from_root) {
          for (std::size_t l = 0; l < g; ++l) {
            builder.copy(rank(i, l), rank(i, (l + offset) % g), range(l, half),
                         into[slot(i, l, half)]);
          }
        }
      }
    }
    return builder.take();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_hierarchical_tree() {
  return std::make_unique<HierarchicalTree>();
}

}  // namespace rackrail::planner
