#include "planner/pipeline/timed_moves.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace rackrail::planner {

void TimedMoves::begin_chunks(std::span<const double> shares) {
  first_ = weights_.size();
  for (auto& at_rank : here_) {
    at_rank.assign(shares.size(), {});
  }
  for (const double share : shares) {
    weights_.push_back(
        static_cast<std::uint32_t>(std::max<std::int64_t>(1, std::llround(units_ * share))));
  }
}

std::uint32_t TimedMoves::reduce(Rank src, Rank dst, double time, GraphBuilder::Range range) {
  const std::uint32_t number = add(plan::TransferOp::kReduce, src, dst, time, range);
  for (std::uint32_t chunk = range.begin; chunk < range.begin + range.count; ++chunk) {
    here_[dst.index()][chunk].push_back(number);
  }
  return number;
}

std::uint32_t TimedMoves::copy(Rank src, Rank dst, double time, GraphBuilder::Range range) {
  const std::uint32_t number = add(plan::TransferOp::kCopy, src, dst, time, range);
  for (std::uint32_t chunk = range.begin; chunk < range.begin + range.count; ++chunk) {
    here_[dst.index()][chunk] = {number};
  }
  return number;
}

std::uint32_t TimedMoves::add(plan::TransferOp op, Rank src, Rank dst, double time,
                              GraphBuilder::Range range) {
  Numbers after;
  for (std::uint32_t chunk = range.begin; chunk < range.begin + range.count; ++chunk) {
    const Numbers& of_chunk = here_[src.index()][chunk];
    after.insert(after.end(), of_chunk.begin(), of_chunk.end());
  }
  if (range.count > 1) {
    std::ranges::sort(after);
    after.erase(std::ranges::unique(after).begin(), after.end());
  }
  for (const std::uint32_t before : after) {
    time = std::max(time, moves_[before].time);
  }
  range.begin += static_cast<std::uint32_t>(first_);
  moves_.push_back({time, op, src, dst, range, std::move(after)});
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
    ids[number] = move.op == plan::TransferOp::kReduce
                      ? builder.reduce(move.src, move.dst, move.range, after)
                      : builder.copy(move.src, move.dst, move.range, after);
  }
  return builder.take();
}

}  // namespace rackrail::planner
