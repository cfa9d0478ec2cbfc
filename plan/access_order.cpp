#include "plan/access_order.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace rackrail::plan {

namespace {

constexpr std::size_t kMoreSteps = 4;  // times as many when searches go on

}  // namespace

AccessOrder::AccessOrder(const TransferGraph& graph, ProblemList& problems, std::size_t first_steps)
    : graph_(graph),
      problems_(problems),
      sums_(graph),
      first_steps_(first_steps),
      ranks_(graph.rank_count()),
      places_(graph.transfers().size()),
      source_seen_(graph.transfers().size(), 0),
      destination_seen_(graph.transfers().size(), 0) {
  // Counted, then placed.
  const std::size_t count = graph.transfers().size();
  dependents_begin_.assign(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) {
    for (const TransferId dependency : graph.dependencies(TransferId(i))) {
      ++dependents_begin_[dependency.index() + 1];
    }
  }
  std::partial_sum(dependents_begin_.begin(), dependents_begin_.end(), dependents_begin_.begin());
  dependents_.resize(dependents_begin_.back());
  std::vector<std::uint32_t> next(dependents_begin_.begin(), dependents_begin_.end() - 1);
  for (std::size_t i = 0; i < count; ++i) {
    for (const TransferId dependency : graph.dependencies(TransferId(i))) {
      dependents_[next[dependency.index()]++] = TransferId(i);
    }
  }
}

void AccessOrder::begin_chunk(std::uint32_t chunk) {
  chunk_ = chunk;
  chain_ends_.clear();
  for (RankState& state : ranks_) {
    state.kind = Kind::kNothing;
    state.before.clear();
    state.current.clear();
  }
}

void AccessOrder::read(TransferId id, std::uint64_t bytes, bool adopts) {
  put_on_chain(id);
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

void AccessOrder::put_on_chain(TransferId id) {
  const Rank here = graph_.transfer(id).src;
  for (const TransferId dependency : graph_.dependencies(id)) {
    const ChainPlace& before = places_[dependency.index()];
    const bool is_end =
        before.chain < chain_ends_.size() && chain_ends_[before.chain] == dependency;
    if (is_end && graph_.transfer(dependency).dst == here) {
      places_[id.index()] = {before.chain, before.position + 1};
      chain_ends_[before.chain] = id;
      return;
    }
  }
  places_[id.index()] = {static_cast<std::uint32_t>(chain_ends_.size()), 0};
  chain_ends_.push_back(id);
}

bool AccessOrder::is_later_on_chain(TransferId id, TransferId earlier) const {
  const ChainPlace& place = places_[id.index()];
  const ChainPlace& before = places_[earlier.index()];
  return place.chain == before.chain && place.position > before.position;
}

bool AccessOrder::is_later_in_sum(Event event, Event earlier) const {
  if (graph_.mutual_sums().empty() || event.at_source || !earlier.at_source) {
    return false;
  }
  const TransferGroup* sum = sums_.sum_of(event.id);
  return sum != nullptr && sum == sums_.sum_of(earlier.id);
}

void AccessOrder::visit_source(TransferId id) {
  if (source_seen_[id.index()] != search_) {
    source_seen_[id.index()] = search_;
    stack_.push_back(id);
  }
}

/// Looks at the dependencies of so many of stack_; none have to be looked at when it is empty.
void AccessOrder::search_backwards(TransferId lowest, std::size_t steps) {
  for (; steps > 0 && !stack_.empty(); --steps) {
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
  }
}

/// Whether something that happens after `from` was reached backwards; what does so only after more
/// steps is not found.
bool AccessOrder::search_forwards(Event from, TransferId last, std::size_t steps) {
  forward_.assign(1, from.id);
  for (std::size_t i = 0; i < forward_.size() && i < steps; ++i) {
    const Transfer& transfer = graph_.transfer(forward_[i]);
    const bool is_applied_only = i == 0 && !from.at_source;
    for (const TransferId next : dependents(forward_[i])) {
      const Rank there = graph_.transfer(next).src;
      const bool follows = there == transfer.dst || (there == transfer.src && !is_applied_only);
      if (!follows || last < next || !moves_chunk(next)) {
        continue;
      }
      if (source_seen_[next.index()] == search_) {
        return true;
      }
      if (forward_.size() < steps) {
        forward_.push_back(next);
      }
    }
  }
  return false;
}

void AccessOrder::require_after(Rank rank, Event event, const std::vector<Event>& earlier) {
  std::size_t found = 0;
  while (found < earlier.size() && (is_later_on_chain(event.id, earlier[found].id) ||
                                    is_later_in_sum(event, earlier[found]))) {
    ++found;
  }
  if (found == earlier.size()) {
    return;
  }
  if (search_ == std::numeric_limits<std::uint32_t>::max()) {
    std::fill(source_seen_.begin(), source_seen_.end(), 0);
    std::fill(destination_seen_.begin(), destination_seen_.end(), 0);
    search_ = 0;
  }
  ++search_;
  // The phase is in id order, so its first access bounds the search from below.
  const TransferId lowest = earlier.front().id;
  stack_.clear();
  visit_source(event.id);
  for (std::size_t steps = first_steps_; !stack_.empty(); steps *= kMoreSteps) {
    search_backwards(lowest, steps);
    while (found < earlier.size() &&
           (is_seen(earlier[found]) || is_later_in_sum(event, earlier[found]) ||
            (!stack_.empty() && search_forwards(earlier[found], event.id, steps)))) {
      ++found;
    }
    if (found == earlier.size()) {
      return;
    }
  }
  for (std::size_t i = found; i < earlier.size(); ++i) {
    if (!is_seen(earlier[i]) && !is_later_in_sum(event, earlier[i])) {
      problems_.add([&] {
        return fmt::format("rank {}, chunk {}: {} is not ordered after {}", rank.value(), chunk_,
                           describe(event), describe(earlier[i]));
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
