// Double binary tree: two trees, each for half of the buffer, so that inner nodes of one are leaves
// of the other and everyone's links carry about the same (Sanders, Speck, Träff, "Two-tree
// algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009).
// Depth is about log₂ n in both directions; slices pipeline through it.
#include "planner/algorithms/binary_tree.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

class DoubleBinaryTree final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "double-binary-tree"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    return refuse_exchange(topology, codecs);
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const std::vector<Rank> order = near_order(request.topology);
    const std::size_t n = order.size();
    GraphBuilder builder("double-binary-tree", request, {1, 1});
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
      const BinaryTree tree = make_binary_tree(n, chunk == 1);
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
