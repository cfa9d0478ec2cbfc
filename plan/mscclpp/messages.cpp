#include "plan/mscclpp/messages.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "plan/mscclpp/program.hpp"
#include "plan/mutual_sum.hpp"

namespace rackrail::plan::mscclpp {

namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

Group::Group(const TransferGraph& graph, const EqualChunks& units,
             std::span<const std::uint32_t> chunks, std::span<const std::uint32_t> hosts,
             std::vector<int>& scratch)
    : graph_(graph), hosts_(hosts), chunk_count_(chunks.size()), phases_(graph.rank_count()) {
  add_messages(units, chunks, scratch);
  is_sent_.assign(messages_.size(), false);
  std::vector<std::vector<Action>> by_rank = actions();
  for (std::size_t rank = 0; rank < by_rank.size() && !crowded_rank_; ++rank) {
    order(rank, std::move(by_rank[rank]));
  }
  number_signals();
}

void Group::add_messages(const EqualChunks& units, std::span<const std::uint32_t> chunks,
                         std::vector<int>& scratch) {
  const MutualSums sums(graph_);
  std::vector<std::uint32_t> number(graph_.chunk_count(), kNone);
  for (std::uint32_t c = 0; c < chunks.size(); ++c) {
    number[chunks[c]] = c;
  }
  for (std::uint32_t t = 0; t < graph_.transfers().size(); ++t) {
    const Transfer& transfer = graph_.transfer(TransferId(t));
    Message message{.id = TransferId(t),
                    .src = transfer.src,
                    .dst = transfer.dst,
                    .is_sum = transfer.op == TransferOp::kReduce,
                    .added_at = TransferId(t)};
    for (std::uint32_t i = 0; i < transfer.chunk_count; ++i) {
      if (number[transfer.chunk_begin + i] != kNone) {
        message.chunks.push_back(number[transfer.chunk_begin + i]);
      }
    }
    if (message.chunks.empty()) {
      continue;
    }
    std::ranges::sort(message.chunks);
    std::vector<std::uint32_t> moved;
    for (const std::uint32_t c : message.chunks) {
      moved.push_back(chunks[c]);
    }
    for (const UnitRange& range : units.runs(moved, std::numeric_limits<int>::max())) {
      message.pieces.push_back({range, scratch[transfer.dst.index()]});
      scratch[transfer.dst.index()] += message.is_sum ? range.count : 0;
    }
    if (const TransferGroup* sum = sums.sum_of(message.id)) {
      message.sum = sum->first.value();
      message.added_at = TransferId(sum->first.value() + sum->count - 1);
    }
    message_of_.emplace(t, messages_.size());
    messages_.push_back(std::move(message));
  }
}

std::vector<std::vector<Group::Action>> Group::actions() const {
  std::vector<std::vector<Action>> by_rank(graph_.rank_count());
  for (std::size_t m = 0; m < messages_.size(); ++m) {
    const Message& message = messages_[m];
    by_rank[message.src.index()].push_back({message.id, false, m});
    by_rank[message.dst.index()].push_back({message.added_at, true, m});
  }
  for (std::vector<Action>& actions : by_rank) {
    std::ranges::stable_sort(actions, {}, &Action::order);
  }
  return by_rank;
}

void Group::order(std::size_t rank, std::vector<Action> left) {
  std::vector<Phase>& phases = phases_[rank];
  while (!left.empty()) {
    if (phases.size() == kMostOperations) {
      crowded_rank_ = static_cast<std::uint32_t>(rank);
      return;
    }
    Phase phase{.sends = take_sends(left), .receives = {}};
    const auto next_send = std::ranges::find(left, false, &Action::is_receipt);
    for (auto action = left.begin(); action != next_send; ++action) {
      phase.receives.push_back(action->message);
    }
    // What comes after the next send in the list has its id or a larger one.
    left.erase(left.begin(), next_send);
    phases.push_back(std::move(phase));
  }
}

/// Removes those that touch no chunk of an earlier receipt.
std::vector<std::size_t> Group::take_sends(std::vector<Action>& left) {
  std::vector<std::size_t> sends;
  std::vector<bool> is_awaited(chunk_count_, false);
  std::erase_if(left, [&](const Action& action) {
    const Message& message = messages_[action.message];
    if (action.is_receipt) {
      for (const std::uint32_t chunk : message.chunks) {
        is_awaited[chunk] = true;
      }
      return false;
    }
    if (std::ranges::any_of(message.chunks, [&](auto chunk) { return is_awaited[chunk]; }) ||
        !may_follow(message, sends)) {
      return false;
    }
    is_sent_[action.message] = true;
    sends.push_back(action.message);
    return true;
  });
  return sends;
}

/// Whether what the sender must have read before has been sent, and read where a NIC reads it.
bool Group::may_follow(const Message& message, std::span<const std::size_t> sends) const {
  return std::ranges::all_of(graph_.dependencies(message.id), [&](TransferId dependency) {
    const auto found = message_of_.find(dependency.value());
    if (found == message_of_.end() || messages_[found->second].src != message.src) {
      return true;
    }
    const Message& earlier = messages_[found->second];
    const bool is_read_by_nic = hosts_[earlier.src.index()] != hosts_[earlier.dst.index()];
    return is_sent_[found->second] &&
           !(is_read_by_nic && std::ranges::find(sends, found->second) != sends.end());
  });
}

void Group::number_signals() {
  for (const std::vector<Phase>& phases : phases_) {
    std::map<Rank, std::uint32_t> signals;
    for (const Phase& phase : phases) {
      std::map<Rank, std::uint32_t> now;
      for (const std::size_t m : phase.sends) {
        const Rank dst = messages_[m].dst;
        const auto [signal, is_new] = now.try_emplace(dst, 0);
        if (is_new) {
          signal->second = ++signals[dst];
        }
        messages_[m].signal = signal->second;
      }
    }
  }
}

}  // namespace rackrail::plan::mscclpp
