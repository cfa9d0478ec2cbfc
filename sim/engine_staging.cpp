// Slices of devices whose memory NICs cannot read: copied to host memory before they leave, and
// from there when they have arrived (topology::Node::host_staging).
//
// A device copies one slice after the other in each direction, in both at the same time, as its two
// copy engines do: after a slice is encoded and before its channel takes it, and between its
// arrival and its decoding or addition. A copy begins as soon as its slice is there, however many
// of those before it have yet to leave: host memory is not what is short. What was copied out is
// sent from there, so the buffer is free; of what switches copy or add, when it has left. A slice
// that goes to several ranks is copied for each of them, unless a switch makes the copies; one that
// is passed on is copied again.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

void Engine::prepare_staging(Run& run, const GraphIndex& index) {
  run.copies_out = std::any_of(index.routes.begin(), index.routes.end(),
                               [](const RouteUse& route) { return route.copy_out > Bandwidth(); });
  if (run.copies_out) {
    run.copied_out.resize(index.slice_count);
    run.copies_out_begun.resize(index.slice_count);
  }
  run.copies_in = std::any_of(index.routes.begin(), index.routes.end(),
                              [](const RouteUse& route) { return route.copy_in > Bandwidth(); });
}

// The transfer whose copy in host memory is sent: what a switch multicasts is there once.
Place Engine::copied_by(const GraphIndex& index, Place place, const Item& item) {
  const bool is_copied_by_a_switch =
      item.group != kNoGroup && index.lane_kinds[place.lane] == LaneKind::kMulticast;
  return is_copied_by_a_switch ? index.groups[item.group].front() : place;
}

// Whether a slice that is there may leave: it is in host memory, where it has to be.
bool Engine::is_staged(const Run& run, Place place, const Item& item, std::uint32_t k) {
  if (!is_copied_out(*run.index, item)) {
    return true;
  }
  const Place by = copied_by(*run.index, place, item);
  const std::uint32_t first = by == place ? item.first_slice : run.index->item(by).first_slice;
  return run.copied_out[first + k];
}

Duration Engine::copy_time(Rank rank, Bandwidth rate, const GraphIndex& index, const Item& item,
                           std::uint32_t k) const {
  return Bytes(slice_bytes(index, item, k)) / rate + ranks_[rank.index()].rates.launch;
}

// A slice is there, encoded where it has to be: the next is its copy, or its way.
void Engine::stage(std::uint32_t number, Place place, const Item& item, std::uint32_t k) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  if (!is_copied_out(index, item) || copied_by(index, place, item) != place) {
    try_send(run.lanes[place.lane].channel);
    return;
  }
  // What another transfer encodes may become ready twice: by that, and by what it waits for.
  if (run.copies_out_begun[item.first_slice + k]) {
    return;
  }
  run.copies_out_begun[item.first_slice + k] = true;
  const Rank rank = index.lanes[place.lane].src;
  const Duration duration = copy_time(rank, index.routes[item.route].copy_out, index, item, k);
  run.copying[side(true)][rank.value()] += duration;
  push_stream(ranks_[rank.index()].copies_out,
              {.kind = TaskKind::kCopyOut, .rank = rank, .run = number, .place = place, .slice = k},
              duration, {});
}

void Engine::finish_copy_out(const Task& task) {
  const GraphIndex& index = *runs_[task.run].index;
  const Item item = index.item(task.place);
  runs_[task.run].copied_out[item.first_slice + task.slice] = true;
  // What is encoded was signalled when it was, or is when it is sent; members of a group are all at
  // once.
  if (!is_lossy(index, item) && item.group == kNoGroup) {
    signal(task.run, task.place, task.slice, true);
  }
  try_send(runs_[task.run].lanes[task.place.lane].channel);
  next_in_stream(ranks_[task.rank.index()].copies_out);
}

// A message is in the memory of its receiver's host.
void Engine::copy_in(std::uint32_t number, Place place, std::uint32_t k) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  const Item item = index.item(place);
  const Bandwidth rate = index.routes[item.route].copy_in;
  if (rate == Bandwidth()) {
    arrived(number, place, k);
    return;
  }
  const Rank dst = index.lanes[place.lane].dst;
  const Duration duration = copy_time(dst, rate, index, item, k);
  run.copying[side(false)][dst.value()] += duration;
  push_stream(ranks_[dst.index()].copies_in,
              {.kind = TaskKind::kCopyIn, .rank = dst, .run = number, .place = place, .slice = k},
              duration, {});
}

void Engine::finish_copy_in(const Task& task) {
  arrived(task.run, task.place, task.slice);
  next_in_stream(ranks_[task.rank.index()].copies_in);
}

std::optional<Duration> Engine::longest_copies(std::span<const std::uint32_t> runs) const {
  std::optional<Duration> longest;
  for (const bool out : {true, false}) {
    std::unordered_map<std::uint32_t, Duration> by_rank;
    for (const std::uint32_t run : runs) {
      for (const auto& [rank, time] : runs_[run].copying[side(out)]) {
        longest = std::max(longest.value_or(Duration()), by_rank[rank] += time);
      }
    }
  }
  return longest;
}

}  // namespace rackrail::sim
