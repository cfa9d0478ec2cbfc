// All-reduce in a ring: n chunks travel once around to be summed and once more to be copied.
#include <utility>

#include "plan/regular_schedule.hpp"

namespace rackrail::plan {

namespace {

class Ring final : public RegularSchedule {
 public:
  Ring(std::vector<Rank> order, std::uint32_t lanes)
      : order_(std::move(order)),
        ranks_(static_cast<std::uint32_t>(order_.size())),
        lanes_(lanes) {}

  std::string name() const override { return "ring"; }
  std::size_t rank_count() const override { return ranks_; }
  std::size_t chunk_count() const override { return ranks_; }
  std::vector<Lane> lanes() const override {
    std::vector<Lane> lanes;
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      lanes.push_back({order_[lane], order_[(lane + 1) % lanes_], steps()});
    }
    return lanes;
  }
  Step step(Place place) const override {
    const std::uint32_t behind = place.position < ranks_ ? place.position : place.position - ranks_;
    return {
        .chunk_begin = place.lane >= behind ? place.lane - behind : place.lane + ranks_ - behind,
        .waits = place.position > 0 ? 1U : 0U,
        .op = place.position < ranks_ - 1 ? TransferOp::kReduce : TransferOp::kCopy,
        .stage = place.position};
  }
  void append_dependents(Place place, std::vector<Dependent>& dependents) const override {
    if (place.position + 1 < steps()) {
      const std::uint32_t next = place.lane + 1;
      dependents.push_back({{next == lanes_ ? 0 : next, place.position + 1}});
    }
  }
  std::unique_ptr<RegularSchedule> folded(std::uint32_t lanes) const override {
    return lanes > 0 && ranks_ % lanes == 0 ? std::make_unique<Ring>(order_, lanes) : nullptr;
  }

 private:
  std::uint32_t steps() const { return 2 * (ranks_ - 1); }

  std::vector<Rank> order_;
  std::uint32_t ranks_;
  std::uint32_t lanes_;
};

}  // namespace

std::unique_ptr<RegularSchedule> make_ring_schedule(std::vector<Rank> order) {
  const auto ranks = static_cast<std::uint32_t>(order.size());
  return std::make_unique<Ring>(std::move(order), ranks);
}

}  // namespace rackrail::plan
