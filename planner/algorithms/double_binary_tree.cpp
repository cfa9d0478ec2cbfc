// Double binary tree: two trees, each for half of the buffer, so that inner nodes of one are leaves
// of the other and everyone's links carry about the same (Sanders, Speck, Träff, "Two-tree
// algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009).
// Depth is about log₂ n in both directions; slices pipeline through it.
#include <string>

#include "planner/algorithms/exchange.hpp"
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
    return make_exchange(
        {std::string(name()),
         "",
         {{RankHierarchy(near_order(request.topology), {}), {{Way::kTree, 0}}, {}, {}}}},
        plan::Collective::kAllReduce, request);
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_double_binary_tree() {
  return std::make_unique<DoubleBinaryTree>();
}

}  // namespace rackrail::planner
