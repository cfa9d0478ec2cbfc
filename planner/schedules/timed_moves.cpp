#include "planner/schedules/timed_moves.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

void TimedMoves::begin_chunk(double share) {
  for (auto& at_rank : here_) {
    at_rank.clear();
  }
  weights_.push_back(
      static_cast<std::uint32_t>(std::max<std::int64_t>(1, std::llround(units_ * share))));
}

std::uint32_t TimedMoves::reduce(Rank src, Rank dst, double time) {
  const std::uint32_t number = add(plan::TransferOp::kReduce, src, dst, time);
  here_[dst.index()].push_back(number);
  return number;
}

std::uint32_t TimedMoves::copy(Rank src, Rank dst, double time) {
  const std::uint32_t number = add(plan::TransferOp::kCopy, src, dst, time);
  here_[dst.index()] = {number};
  return number;
}

std::uint32_t TimedMoves::add(plan::TransferOp op, Rank src, Rank dst, double time) {
  const std::vector<std::uint32_t>& after = here_[src.index()];
  for (const std::uint32_t before : after) {
    time = std::max(time, moves_[before].time);
  }
  const auto chunk = static_cast<std::uint32_t>(weights_.size() - 1);
  moves_.push_back({time, op, src, dst, chunk, after});
  return static_cast<std::uint32_t>(moves_.size() - 1);
}

plan::TransferGraph TimedMoves::graph(const std::string& name, const ScheduleRequest& request,
                                      const WaitMore& wait_more) const {
  std::vector<std::uint32_t> order(moves_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t number) { return moves_[number].time; });
  GraphBuilder builder(name, request, weights_);
  std::vector<TransferId> ids(moves_.size());
  std::vector<std::uint32_t> waits;
  std::vector<TransferId> after;
  for (const std::uint32_t number : order) {
    const TimedMove& move = moves_[number];
    waits = move.after;
    if (wait_more) {
      wait_more(number, move, waits);
    }
    after.clear();
    for (const std::uint32_t before : waits) {
      after.push_back(ids[before]);
    }
    const GraphBuilder::Range range{move.chunk, 1};
    ids[number] = move.op == plan::TransferOp::kReduce
                      ? builder.reduce(move.src, move.dst, range, after)
                      : builder.copy(move.src, move.dst, range, after);
  }
  return builder.take();
}

}  // namespace rackrail::planner
