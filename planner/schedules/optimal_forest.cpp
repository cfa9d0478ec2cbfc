// Throughput-optimal forests (planner/forest/): from every rank, trees that fill the links that
// bind and no more; what they sum up they broadcast, part by part.
#include <algorithm>

#include "planner/forest/forest_schedule.hpp"
#include "planner/forest/joint_forest.hpp"
#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

namespace {

// Beyond this many ranks a graph has millions of transfers.
constexpr std::size_t kMostRanks = 512;
// Large buffers gain from rounds, until graphs become large themselves.
constexpr std::size_t kFineRounds = 16;
constexpr std::size_t kMostTransfers = 130'000;

class ForestFamily final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "forest"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (topology.rank_count() < 2) {
      return "one rank alone has nothing to exchange";
    }
    if (topology.rank_count() > kMostRanks) {
      return "there are too many ranks for a tree from each of them";
    }
    return refuse_lossy_hops(codecs);
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const AllReduceForests forests = make_allreduce_forests(request.topology);
    return all_reduce_along(forests.reduction, forests.broadcast, request, 1);
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    const AllReduceForests forests = make_allreduce_forests(request.topology);
    std::vector<plan::TransferGraph> graphs;
    graphs.push_back(all_reduce_along(forests.reduction, forests.broadcast, request, 1));
    const std::size_t rounds = std::min(kFineRounds, kMostTransfers / graphs[0].transfers().size());
    if (rounds > 1) {
      graphs.push_back(all_reduce_along(forests.reduction, forests.broadcast, request, rounds));
    }
    return graphs;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_optimal_forest() { return std::make_unique<ForestFamily>(); }

}  // namespace rackrail::planner
