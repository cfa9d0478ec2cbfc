// Hierarchical all-reduce with rings between the groups: fewer and longer-lived neighbours than
// `hierarchical`, whose members talk to all other groups, at the price of more hops.
#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

class HierarchicalRing final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "hierarchical-ring"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (auto refusal = refuse_uneven_groups(topology)) {
      return refusal;
    }
    // With a codec, a shard would be written where it is encoded while the ring still reads it.
    if (codecs.inside.is_lossy() || codecs.across.is_lossy()) {
      return "it moves FP32 only";
    }
    return std::nullopt;
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    const auto groups = tier_groups(topology);
    const std::uint64_t k = groups.size();
    const std::uint64_t g = groups[0].ranks.size();
    const std::uint64_t ring = 2 * g * k * (k - 1);
    return {ring + 2 * g * k * (g - 1), ring + 2 * g * k * (g - 1) * k};
  }

  std::unique_ptr<plan::RegularSchedule> regular_all_reduce(
      const topology::Topology& topology) const override {
    std::vector<std::vector<Rank>> groups;
    for (const topology::RankGroup& group : tier_groups(topology)) {
      groups.push_back(group.ranks);
    }
    return plan::make_hierarchical_ring_schedule(std::move(groups));
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return build(*regular_all_reduce(request.topology), request);
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_hierarchical_ring() {
  return std::make_unique<HierarchicalRing>();
}

}  // namespace rackrail::planner
