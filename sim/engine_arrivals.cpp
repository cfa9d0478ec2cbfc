// Slices that arrive: when they are applied, and what they set free.
#include <algorithm>
#include <vector>

#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

Duration Engine::codec_time(Rank rank, const GraphIndex& index, std::uint32_t codec,
                            std::int64_t elements, bool encode) const {
  const plan::DeviceRates& rates = ranks_[rank.index()].rates;
  const plan::CodecRate& rate = rates.codecs[static_cast<std::size_t>(index.codecs[codec].kind)];
  const plan::CodecEffort& effort = index.efforts[codec];
  const Duration usual = Bytes(elements * kBytesPerElement) / (encode ? rate.encode : rate.decode);
  const double factor = encode ? effort.encode : effort.decode;
  return (factor == 1 ? usual : scaled(usual, factor)) + rates.launch;
}

// A message is there: what it costs its receiver comes before what is done with it.
void Engine::received(std::uint32_t number, Place place, std::uint32_t k) {
  const Run& run = runs_[number];
  if (run.costs_receivers) {
    const Duration overhead = run.index->routes[run.index->item(place).route].receive_overhead;
    if (overhead > Duration()) {
      const Rank dst = run.index->lanes[place.lane].dst;
      push_stream(
          ranks_[dst.index()].messages,
          {.kind = TaskKind::kReceive, .rank = dst, .run = number, .place = place, .slice = k},
          overhead, {});
      return;
    }
  }
  if (run.copies_in) {
    copy_in(number, place, k);
  } else {
    arrived(number, place, k);
  }
}

void Engine::arrived(std::uint32_t number, Place place, std::uint32_t k) {
  arrived(number, place, k, now_);
}

// What is added to a slice is applied in order. A device with a queue takes the next addition as
// soon as it has taken the one before, and the way to it is hidden by what it waits for there.
void Engine::arrived(std::uint32_t number, Place place, std::uint32_t k, Time since) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  const Rank dst = index.lanes[place.lane].dst;
  if (run.ready[dst.index()] == 0) {
    run.held[dst.value()].emplace_back(place, k);
    return;
  }
  const Item item = index.item(place);
  if (index.orders_additions) {
    const std::uint32_t slice = item.first_slice + k;
    if (run.additions_met(slice) < item.additions_before) {
      run.early_additions.emplace(slice, since);
      return;
    }
  }
  RankState& rank = ranks_[dst.index()];
  const bool is_queued = run.queues_additions && rank.has_queue();
  const Duration hidden = is_queued ? Duration(now_ - since) : Duration();
  const Duration wake = std::max(Duration(), rank.rates.wake - hidden);
  Task task{.kind = TaskKind::kReduce, .rank = dst, .run = number, .place = place, .slice = k};
  if (is_lossy(index, item)) {
    task.kind = TaskKind::kDecode;
    push_stream(rank.codec, task,
                codec_time(dst, index, item.codec, slice_size(index, item, k), false), wake);
  } else if (item.op == plan::TransferOp::kReduce) {
    push_stream(rank.reduce, task, rank.reduce_time(slice_size(index, item, k)), wake);
    if (is_queued) {
      const bool whole_queued =
          !index.has_partial_waits || ++run.slices_queued[item.first_slice] == item.slices;
      free_additions(number, place, k, whole_queued);
    }
  } else {
    signal(number, place, k, false);
  }
}

void Engine::count_down(std::uint32_t number, Rank rank) {
  Run& run = runs_[number];
  ++ended_;
  if (--run.open[rank.index()] > 0 || (run.owner && *run.owner != rank)) {
    return;
  }
  end_run_on(number, rank);
  next_compute(rank);
}

// One more dependency of a slice is met.
void Engine::met(std::uint32_t number, Place place, const Item& item, std::uint32_t k) {
  if (++runs_[number].met(item.first_slice + k) == item.waits) {
    slice_unblocked(number, place, item, k);
  }
}

void Engine::signal(std::uint32_t number, Place place, std::uint32_t k, bool at_source) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  bool whole_done = true;
  if (index.has_partial_waits) {
    const Item item = index.item(place);
    whole_done = ++run.slices_done[side(at_source)][item.first_slice] == item.slices;
  }
  // What is set free comes back here only for lossy transfers, and those are stored, not computed.
  for (const Dependent& dependent : index.dependents(place, at_source, scratch_)) {
    if (!dependent.whole) {
      Item other;
      met(number, dependent.place, run.item(dependent.place, other), k);
    } else if (whole_done) {
      const Item item = index.item(dependent.place);
      for (std::uint32_t s = 0; s < item.slices; ++s) {
        met(number, dependent.place, item, s);
      }
    }
  }
  if (!at_source) {
    const bool was_queued = run.queues_additions &&
                            ranks_[index.lanes[place.lane].dst.index()].has_queue() &&
                            index.item(place).op == plan::TransferOp::kReduce;
    if (index.orders_additions && !was_queued) {
      free_additions(number, place, k, whole_done);
    }
    count_down(number, index.lanes[place.lane].dst);
  }
}

// Slice k of an addition is applied, or in its device's queue: those that had to wait for it have
// their turn.
void Engine::free_additions(std::uint32_t number, Place place, std::uint32_t k, bool whole_done) {
  const bool is_first = freed_.empty();
  const auto is_met = [&](const Dependent& next, const Item& item, std::uint32_t s) {
    Run& run = runs_[number];
    const std::uint32_t slice = item.first_slice + s;
    if (++run.additions_met(slice) < item.additions_before) {
      return;
    }
    if (const auto early = run.early_additions.find(slice); early != run.early_additions.end()) {
      freed_.push_back({number, next.place, s, early->second});
      run.early_additions.erase(early);
    }
  };
  for (const Dependent& next : runs_[number].index->next_additions(place, scratch_)) {
    const Item item = runs_[number].index->item(next.place);
    if (!next.whole) {
      is_met(next, item, k);
    } else if (whole_done) {
      for (std::uint32_t s = 0; s < item.slices; ++s) {
        is_met(next, item, s);
      }
    }
  }
  // Not one from within the other: chains are as long as there are ranks, and what follows each is
  // looked up in scratch_, too.
  for (std::size_t i = 0; is_first && i < freed_.size(); ++i) {
    const FreedAddition one = freed_[i];
    arrived(one.run, one.place, one.slice, one.since);
  }
  if (is_first) {
    freed_.clear();
  }
}

}  // namespace rackrail::sim
