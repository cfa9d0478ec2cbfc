#include "plan/access_order.hpp"

#include <algorithm>
#include <limits>

namespace rackrail::plan {

AccessOrder::AccessOrder(const TransferGraph& graph, ProblemList& problems)
    : graph_(graph),
      problems_(problems),
      ranks_(graph.rank_count()),
      source_seen_(graph.transfers().size(), 0),
      destination_seen_(graph.transfers().size(), 0) {}

void AccessOrder::begin_chunk(std::uint32_t chunk) {
  chunk_ = chunk;
  for (RankState& state : ranks_) {
    state.kind = Kind::kNothing;
    state.before.clear();
    state.current.clear();
  }
}

void AccessOrder::read(TransferId id, std::uint64_t bytes, bool adopts) {
  const Rank rank = graph_.transfer(id).src;
  RankState& state = ranks_[rank.index()];
  const bool same_bytes = bytes != 0 && bytes == state.bytes;
  const bool joins = (state.kind == Kind::kAdopt && same_bytes) ||
                     (state.kind == Kind::kRead && (same_bytes || !adopts));
  const bool stays_adopted = joins && state.kind == Kind::kAdopt;
  access(rank, {.id = id, .at_source = true}, adopts || stays_adopted ? Kind::kAdopt : Kind::kRead,
         joins);
  state.bytes = !joins || same_bytes ? bytes : 0;
}

void AccessOrder::write(TransferId id) {
  access(graph_.transfer(id).dst, {.id = id, .at_source = false}, Kind::kWrite, false);
}

void AccessOrder::add(TransferId id) {
  const Rank rank = graph_.transfer(id).dst;
  const bool joins = ranks_[rank.index()].kind == Kind::kAdd;
  access(rank, {.id = id, .at_source = false}, Kind::kAdd, joins);
}

void AccessOrder::access(Rank rank, Event event, Kind kind, bool joins) {
  RankState& state = ranks_[rank.index()];
  if (!joins) {
    state.before.swap(state.current);
    state.current.clear();
  }
  state.kind = kind;
  require_after(rank, event, state.before);
  state.current.push_back(event);
}

bool AccessOrder::moves_chunk(TransferId id) const {
  const Transfer& transfer = graph_.transfer(id);
  return chunk_ >= transfer.chunk_begin && chunk_ - transfer.chunk_begin < transfer.chunk_count;
}

void AccessOrder::visit_source(TransferId id) {
  if (source_seen_[id.index()] != search_) {
    source_seen_[id.index()] = search_;
    stack_.push_back(id);
  }
}

void AccessOrder::require_after(Rank rank, Event event, const std::vector<Event>& earlier) {
  if (earlier.empty()) {
    return;
  }
  if (search_ == std::numeric_limits<std::uint32_t>::max()) {
    std::fill(source_seen_.begin(), source_seen_.end(), 0);
    std::fill(destination_seen_.begin(), destination_seen_.end(), 0);
    search_ = 0;
  }
  ++search_;
  const auto is_seen = [this](const Event& e) {
    return (e.at_source ? source_seen_ : destination_seen_)[e.id.index()] == search_;
  };
  // The phase is in id order, so its first access bounds the search from below.
  const TransferId lowest = earlier.front().id;
  stack_.clear();
  visit_source(event.id);
  std::size_t found = 0;
  while (!stack_.empty()) {
    const TransferId id = stack_.back();
    stack_.pop_back();
    const Rank here = graph_.transfer(id).src;
    for (const TransferId dependency : graph_.dependencies(id)) {
      if (dependency < lowest || !moves_chunk(dependency)) {
        continue;
      }
      if (graph_.transfer(dependency).dst == here) {
        destination_seen_[dependency.index()] = search_;
        visit_source(dependency);
      } else if (graph_.transfer(dependency).src == here) {
        visit_source(dependency);
      }
    }
    while (found < earlier.size() && is_seen(earlier[found])) {
      ++found;
    }
    if (found == earlier.size()) {
      return;
    }
  }
  for (const Event& e : earlier) {
    if (!is_seen(e)) {
      problems_.add([&] {
        return fmt::format("rank {}, chunk {}: {} is not ordered after {}", rank.value(), chunk_,
                           describe(event), describe(e));
      });
    }
  }
}

std::string AccessOrder::describe(Event event) const {
  const Transfer& transfer = graph_.transfer(event.id);
  const char* what = event.at_source                    ? "send"
                     : transfer.op == TransferOp::kCopy ? "copy"
                                                        : "addition";
  return fmt::format("the {} of transfer {} (rank {} to rank {})", what, event.id.value(),
                     transfer.src.value(), transfer.dst.value());
}

}  // namespace rackrail::plan
