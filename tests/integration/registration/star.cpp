// A schedule family as somebody would add one: everybody's sum in one place, and back.
#include "planner/algorithms/families.hpp"

namespace rackrail::planner {
namespace {

class Star final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "star"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    return refuse_exchange(topology, codecs);
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    GraphBuilder builder("star", request, {1});
    const std::size_t ranks = request.topology.rank_count();
    std::vector<TransferId> sums;
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      sums.push_back(builder.reduce(Rank(rank), Rank(0), {0, 1}, {}));
    }
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      builder.copy(Rank(0), Rank(rank), {0, 1}, sums);
    }
    return builder.take();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_star() { return std::make_unique<Star>(); }

}  // namespace rackrail::planner
