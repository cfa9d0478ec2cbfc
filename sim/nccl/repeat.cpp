#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "sim/nccl/schedules.hpp"

namespace rackrail::sim::nccl {

namespace {

class Repeated final : public plan::RegularSchedule {
 public:
  Repeated(const plan::TransferGraph& loop, std::uint32_t times, std::uint32_t steps)
      : name_(loop.name()),
        ranks_(loop.rank_count()),
        chunks_(static_cast<std::uint32_t>(loop.chunk_count())),
        times_(times),
        lanes_(lanes_of(loop)),
        window_(steps * stages_) {}

  std::string name() const override { return name_; }
  std::size_t rank_count() const override { return ranks_; }
  std::size_t chunk_count() const override { return std::size_t{chunks_} * times_; }
  bool mixes_ranges() const override { return window_ < times_; }
  bool has_connections() const override { return true; }

  std::vector<Lane> lanes() const override {
    std::vector<Lane> lanes;
    for (const LaneOfLoop& lane : lanes_) {
      lanes.push_back({lane.transfer.src, lane.transfer.dst, times_});
    }
    return lanes;
  }

  Step step(Place place) const override {
    const LaneOfLoop& lane = lanes_[place.lane];
    const bool waits_for_window = lane.ends && place.position >= window_;
    return {.chunk_begin = lane.transfer.chunk_begin + place.position * chunks_,
            .chunk_count = lane.transfer.chunk_count,
            .waits = lane.waits + (waits_for_window ? 1 : 0),
            .op = lane.transfer.op,
            .additions_before = 0,
            .stage = lane.stage + place.position / window_ * stages_};
  }

  void append_dependents(Place place, std::vector<Dependent>& dependents) const override {
    for (const std::uint32_t next : lanes_[place.lane].dependents) {
      dependents.push_back({{next, place.position}, false});
    }
    const auto& starts = lanes_[place.lane].starts;
    if (starts && place.position + window_ < times_) {
      dependents.push_back({{*starts, place.position + window_}, true});
    }
  }

 private:
  struct LaneOfLoop {
    plan::Transfer transfer;
    std::uint32_t waits = 0;
    std::uint32_t stage = 0;
    std::vector<std::uint32_t> dependents;
    std::optional<std::uint32_t> ends;    ///< of a first transfer: the lane that ends its round
    std::optional<std::uint32_t> starts;  ///< the reverse
  };

  /// Copies before sums: what is nearly done goes before what is new.
  std::vector<LaneOfLoop> lanes_of(const plan::TransferGraph& loop) {
    const auto count = static_cast<std::uint32_t>(loop.transfers().size());
    std::vector<std::uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0U);
    std::stable_partition(order.begin(), order.end(), [&](std::uint32_t t) {
      return loop.transfers()[t].op == plan::TransferOp::kCopy;
    });
    std::vector<std::uint32_t> lane_of(count);
    for (std::uint32_t lane = 0; lane < count; ++lane) {
      lane_of[order[lane]] = lane;
    }
    std::vector<LaneOfLoop> lanes(count);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> ends;  // by rank and chunk
    for (std::uint32_t t = 0; t < count; ++t) {
      const plan::Transfer& transfer = loop.transfers()[t];
      LaneOfLoop& lane = lanes[lane_of[t]];
      lane.transfer = transfer;
      for (const TransferId dependency : loop.dependencies(TransferId(t))) {
        LaneOfLoop& before = lanes[lane_of[dependency.index()]];
        if (before.transfer.dst != transfer.src) {
          throw PlanError(ErrorContext{"", "schedule '" + name_ + "'",
                                       "a dependency that starts at the sender",
                                       "dependencies that end there"});
        }
        before.dependents.push_back(lane_of[t]);
        ++lane.waits;
        lane.stage = std::max(lane.stage, before.stage + 1);
      }
      stages_ = std::max(stages_, lane.stage + 1);
      if (transfer.op == plan::TransferOp::kCopy) {
        ends[{transfer.dst.value(), transfer.chunk_begin}] = lane_of[t];
      }
    }
    for (std::uint32_t l = 0; l < count; ++l) {
      const plan::Transfer& transfer = lanes[l].transfer;
      const auto end = ends.find({transfer.src.value(), transfer.chunk_begin});
      if (lanes[l].waits == 0 && end != ends.end()) {
        lanes[l].ends = end->second;
        lanes[end->second].starts = l;
      }
    }
    return lanes;
  }

  std::string name_;
  std::size_t ranks_;
  std::uint32_t chunks_;
  std::uint32_t times_;
  std::uint32_t stages_ = 0;
  std::vector<LaneOfLoop> lanes_;
  std::uint32_t window_;
};

}  // namespace

std::unique_ptr<plan::RegularSchedule> repeat(const plan::TransferGraph& loop, std::uint32_t times,
                                              std::uint32_t steps) {
  return std::make_unique<Repeated>(loop, times, steps);
}

}  // namespace rackrail::sim::nccl
