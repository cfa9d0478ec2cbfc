// Hierarchical all-reduce with double binary trees between the groups, for very many of them: its
// size grows with the number of ranks, not with their square, and its depth with the logarithm of
// the number of groups. An exchange (exchange.hpp): direct inside groups, along trees across them,
// each for half of what a line carries. That is 4g(g−1)k transfers inside k groups of g ranks and
// 4g(k−1) across: half a million for 2,048 groups of 8.
#include "planner/algorithms/exchange.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

Exchange along_trees(const topology::Topology& topology) {
  return {"hierarchical-tree",
          "",
          {{groups_and_all(topology), {{Way::kDirect, 1}, {Way::kTree, 0}}, {}, {}}}};
}

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
    const std::uint64_t transfers =
        exchange_transfers(along_trees(topology), plan::Collective::kAllReduce);
    return {transfers, transfers};
  }

  bool depends_on_codecs() const override { return true; }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return make_exchange(along_trees(request.topology), plan::Collective::kAllReduce, request);
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_hierarchical_tree() {
  return std::make_unique<HierarchicalTree>();
}

}  // namespace rackrail::planner
