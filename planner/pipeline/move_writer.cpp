#include "planner/pipeline/move_writer.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kManyWaits = 32;  // beyond, one stands for all

}  // namespace

MoveWriter::MoveWriter(std::string name, const ScheduleRequest& request, plan::Collective what)
    : name_(std::move(name)),
      request_(request),
      what_(what),
      has_codecs_(request.codecs.inside.is_lossy() || request.codecs.across.is_lossy()),
      group_of_(tier_group_by_rank(request.topology)) {}

void MoveWriter::begin_chunks(std::span<const std::uint32_t> weights,
                              std::span<const Rank> owners) {
  first_ = static_cast<std::uint32_t>(weights_.size());
  chunks_ = static_cast<std::uint32_t>(weights.size());
  weights_.insert(weights_.end(), weights.begin(), weights.end());
  owners_.insert(owners_.end(), owners.begin(), owners.end());
  here_.assign(request_.topology.rank_count() * chunks_, {});
  nodes_.assign(1, {});
}

const plan::Codec& MoveWriter::codec(Rank src, Rank dst) const {
  return group_of_[src.index()] == group_of_[dst.index()] ? request_.codecs.inside
                                                          : request_.codecs.across;
}

bool MoveWriter::is_same_form(const Move& one, const Move& other) const {
  return one.range.begin == other.range.begin && one.range.count == other.range.count &&
         codec(one.src, one.dst) == codec(other.src, other.dst);
}

void MoveWriter::collect(const Move& move, std::span<const std::uint32_t> more) {
  waits_.clear();
  std::optional<std::uint32_t> first;  // copy of the same form
  Numbers others(more.begin(), more.end());
  for (std::uint32_t i = 0; i < move.range.count; ++i) {
    const Here& left = here(move.src, move.range.begin - first_ + i);
    for (std::uint32_t node = left.came; node != 0; node = nodes_[node].next) {
      waits_.push_back(nodes_[node].move);
    }
    for (std::uint32_t node = left.sent; node != 0; node = nodes_[node].next) {
      if (is_same_form(moves_[nodes_[node].move], move)) {
        first = nodes_[node].move;
      } else if (has_codecs_) {
        others.push_back(nodes_[node].move);
      }
    }
  }
  if (first && waits_.size() > kManyWaits) {
    waits_ = {*first};
  }
  waits_.insert(waits_.end(), others.begin(), others.end());
  std::ranges::sort(waits_);
  waits_.erase(std::ranges::unique(waits_).begin(), waits_.end());
}

/// As the last one, which waits for waits_.
void MoveWriter::put(Move move) {
  move.after_begin = static_cast<std::uint32_t>(afters_.size());
  afters_.insert(afters_.end(), waits_.begin(), waits_.end());
  move.after_end = static_cast<std::uint32_t>(afters_.size());
  moves_.push_back(move);
}

void MoveWriter::mutual_sum(std::span<const Rank> members, Range range) {
  const auto first = static_cast<std::uint32_t>(moves_.size());
  double turn = 0;
  for (const Rank src : members) {
    for (const Rank dst : members) {
      if (src == dst) {
        continue;
      }
      const Move move{plan::TransferOp::kReduce, src, dst, {first_ + range.begin, range.count}};
      collect(move, {});
      for (const std::uint32_t before : waits_) {
        turn = std::max(turn, moves_[before].turn + 1);
      }
      put(move);
    }
  }
  const auto end = static_cast<std::uint32_t>(moves_.size());
  // What a rank had before is in what came now.
  for (std::uint32_t chunk = range.begin; chunk < range.begin + range.count; ++chunk) {
    for (const Rank rank : members) {
      here(rank, chunk) = {};
    }
    for (std::uint32_t number = first; number < end; ++number) {
      Here& there = here(moves_[number].dst, chunk);
      there.came = prepended(number, there.came);
    }
  }
  for (std::uint32_t number = first; number < end; ++number) {
    moves_[number].turn = turn + delay_;
  }
  sums_.emplace_back(first, end - first);
}

std::uint32_t MoveWriter::add(plan::TransferOp op, Rank src, Rank dst, Range range,
                              std::optional<double> turn, std::span<const std::uint32_t> more) {
  const auto number = static_cast<std::uint32_t>(moves_.size());
  Move move{op, src, dst, {first_ + range.begin, range.count}, turn.value_or(0), 0, 0};
  collect(move, more);
  for (const std::uint32_t before : waits_) {
    move.turn = std::max(move.turn, moves_[before].turn + (turn ? 0 : 1));
  }
  move.turn += turn ? 0 : delay_;
  put(move);
  for (std::uint32_t chunk = range.begin; chunk < range.begin + range.count; ++chunk) {
    Here& there = here(dst, chunk);
    if (op == plan::TransferOp::kCopy) {
      there = {};  // it replaces what was added
      Here& left = here(src, chunk);
      left.sent = prepended(number, left.sent);
    }
    there.came = prepended(number, there.came);
  }
  return number;
}

plan::TransferGraph MoveWriter::take(const WaitMore& wait_more) {
  Numbers order(moves_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t number) { return moves_[number].turn; });
  GraphBuilder builder(name_, request_, weights_, what_);
  std::vector<TransferId> ids(moves_.size());
  Numbers waits;
  std::vector<TransferId> after;
  for (const std::uint32_t number : order) {
    const Move& move = moves_[number];
    waits.assign(afters_.begin() + move.after_begin, afters_.begin() + move.after_end);
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
  std::vector<std::pair<TransferId, std::uint32_t>> sums;
  for (const auto& [first, count] : sums_) {
    sums.emplace_back(ids[first], count);
  }
  std::ranges::sort(sums);
  for (const auto& [first, count] : sums) {
    builder.mutual_sum(first, count);
  }
  return builder.take(owners_);
}

}  // namespace rackrail::planner
