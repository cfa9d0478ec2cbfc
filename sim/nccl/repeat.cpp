#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "sim/nccl/schedules.hpp"

namespace rackrail::sim::nccl {

namespace {

class Repeated final : public plan::RegularSchedule {
 public:
  Repeated(plan::TransferGraph loop, std::uint32_t times)
      : loop_(std::move(loop)),
        times_(times),
        dependents_(loop_.transfers().size()),
        stages_(loop_.transfers().size()) {
    for (std::uint32_t t = 0; t < dependents_.size(); ++t) {
      for (const TransferId dependency : loop_.dependencies(TransferId(t))) {
        dependents_[dependency.index()].push_back(t);
        stages_[t] = std::max(stages_[t], stages_[dependency.index()] + 1);
      }
    }
  }

  std::string name() const override { return loop_.name(); }
  std::size_t rank_count() const override { return loop_.rank_count(); }
  std::size_t chunk_count() const override { return loop_.chunk_count() * times_; }

  std::vector<Lane> lanes() const override {
    std::vector<Lane> lanes;
    for (const plan::Transfer& transfer : loop_.transfers()) {
      lanes.push_back({transfer.src, transfer.dst, times_});
    }
    return lanes;
  }

  Step step(Place place) const override {
    const plan::Transfer& transfer = loop_.transfers()[place.lane];
    const auto chunks = static_cast<std::uint32_t>(loop_.chunk_count());
    return {.chunk_begin = transfer.chunk_begin + place.position * chunks,
            .chunk_count = transfer.chunk_count,
            .op = transfer.op,
            .waits = static_cast<std::uint32_t>(loop_.dependencies(TransferId(place.lane)).size()),
            .additions_before = 0,
            .stage = stages_[place.lane]};
  }

  void append_dependents(Place place, std::vector<Place>& dependents) const override {
    for (const std::uint32_t lane : dependents_[place.lane]) {
      dependents.push_back({lane, place.position});
    }
  }

 private:
  plan::TransferGraph loop_;
  std::uint32_t times_;
  std::vector<std::vector<std::uint32_t>> dependents_;
  std::vector<std::uint32_t> stages_;
};

}  // namespace

std::unique_ptr<plan::RegularSchedule> repeat(plan::TransferGraph loop, std::uint32_t times) {
  for (const plan::Transfer& transfer : loop.transfers()) {
    for (const TransferId dependency : loop.dependencies(
             TransferId(static_cast<std::size_t>(&transfer - loop.transfers().data())))) {
      if (loop.transfer(dependency).dst != transfer.src) {
        throw PlanError(ErrorContext{"", "schedule '" + loop.name() + "'",
                                     "a dependency that starts at the sender",
                                     "dependencies that end there"});
      }
    }
  }
  return std::make_unique<Repeated>(std::move(loop), times);
}

}  // namespace rackrail::sim::nccl
