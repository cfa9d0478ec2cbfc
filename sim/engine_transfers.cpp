// Slices: what unblocks them, and how they leave.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "plan/send_pace.hpp"
#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

std::uint32_t Engine::add_run(std::shared_ptr<const GraphIndex> shared, std::string name,
                              Urgency urgency, std::optional<Rank> owner) {
  const std::uint32_t number = runs_.add();
  const GraphIndex& index = *shared;
  Run& run = runs_[number];
  run.name = std::move(name);
  run.urgency = urgency;
  run.counts_per_slice = index.orders_additions ? 2 : 1;
  run.counts.resize(run.counts_per_slice * index.slice_count);
  run.ready.assign(ranks_.size(), owner ? 1 : 0);
  if (owner) {
    run.ready[owner->index()] = 0;
  }
  run.owner = owner;
  run.open = index.slices_at;
  if (programs_.empty()) {  // those of programs are counted with them
    slice_ends_ = std::accumulate(run.open.begin(), run.open.end(), slice_ends_);
  }
  run.route_bytes.resize(index.routes.size());
  run.costs_receivers =
      std::any_of(index.routes.begin(), index.routes.end(),
                  [](const RouteUse& route) { return route.receive_overhead > Duration(); });
  prepare_staging(run, index);
  // Decoded slices are another stream's, which no queue keeps in order with these, and sums of
  // switches stand for several additions.
  run.queues_additions =
      index.orders_additions && index.codecs.size() == 1 && index.lane_kinds.empty();
  if (run.queues_additions && index.has_partial_waits) {
    run.slices_queued.resize(index.slice_count);
  }
  if (index.has_partial_waits) {
    run.slices_done[side(true)].resize(index.slice_count);
    run.slices_done[side(false)].resize(index.slice_count);
  }
  if (index.codecs.size() > 1) {
    run.encoded.resize(index.slice_count);
  }
  for (std::uint32_t lane = 0; lane < index.lanes.size(); ++lane) {
    const Lane& ends = index.lanes[lane];
    const Rank dst = index.receivers.empty() ? ends.dst : index.receivers[lane];
    const std::uint64_t pair = (std::uint64_t{ends.src.value()} << 32U) | dst.value();
    const Item first = index.item({lane, 0});
    const LaneKind kind = index.lane_kinds.empty() ? LaneKind::kOwn : index.lane_kinds[lane];
    const std::uint32_t route = index.route_numbers.empty()
                                    ? route_number(index.routes[first.route])
                                    : index.route_numbers[first.route];
    const std::uint32_t channel =
        index.has_connections ? new_channel(0) : channel_of(pair, kind, route);
    run.lanes.push_back({.next = first, .channel = channel, .count = ends.count});
    for (std::uint32_t i = 0; index.codecs.size() > 1 && i < ends.count; ++i) {
      const Item item = index.item({lane, i});
      if (item.encoding == plan::EncodingKind::kShared) {
        run.sharers[key(item.encoded_by)].push_back({lane, i});
      }
    }
  }
  for (std::uint32_t lane = 0; owner && lane < index.lanes.size(); ++lane) {
    if (run.ready[index.lanes[lane].src.index()] != 0) {
      open_lane(number, lane);
    }
  }
  run.index = std::move(shared);
  if (work_left_) {
    work_left_->add(*run.index);
  }
  return number;
}

std::uint32_t Engine::new_channel(std::uint32_t route) {
  channels_.push_back({.route = route});
  return static_cast<std::uint32_t>(channels_.size() - 1);
}

// The one of a pair and a route, whichever run it is of.
std::uint32_t Engine::channel_of(std::uint64_t pair, LaneKind kind, std::uint32_t route) {
  auto& first = channel_ids_[static_cast<std::size_t>(kind)];
  const auto found = first.find(pair);
  if (found == first.end()) {
    return first.emplace(pair, new_channel(route)).first->second;
  }
  if (channels_[found->second].route == route) {
    return found->second;
  }
  const std::tuple place(pair, kind, route);
  const auto further = further_channels_.find(place);
  return further != further_channels_.end()
             ? further->second
             : further_channels_.emplace(place, new_channel(route)).first->second;
}

// Lets a lane compete for its channel.
void Engine::open_lane(std::uint32_t number, std::uint32_t lane) {
  const Run& run = runs_[number];
  auto& competing = channels_[run.lanes[lane].channel].lanes;
  const auto order_of = [&](std::uint32_t run_number) {
    const Run& its = runs_[run_number];
    return std::tuple(its.urgency, its.owner, run_number);
  };
  std::size_t place = competing.size();
  while (place > 0 && order_of(number) < order_of(competing[place - 1].first)) {
    --place;
  }
  competing.insert(place, {number, lane});
}

void Engine::data_ready(std::uint32_t number, Rank rank) {
  Run& run = runs_[number];
  run.ready[rank.index()] = 1;
  run.ready_at = std::max(run.ready_at, now_);
  const GraphIndex& index = *run.index;
  for (const std::uint32_t lane : index.lanes_from(rank)) {
    open_lane(number, lane);
    // Transfers to encode or to copy need not be the next to leave.
    const bool prepares = index.codecs.size() > 1 || run.copies_out;
    for (std::uint32_t i = 0; prepares && i < index.lanes[lane].count; ++i) {
      const Item item = index.item({lane, i});
      const bool is_prepared = is_lossy(index, item) || is_copied_out(index, item);
      for (std::uint32_t k = 0; is_prepared && k < item.slices; ++k) {
        if (run.met(item.first_slice + k) == item.waits) {
          slice_unblocked(number, {lane, i}, item, k);
        }
      }
    }
    try_send(run.lanes[lane].channel);
  }
  if (const auto held = run.held.extract(rank.value())) {
    for (const auto& [place, k] : held.mapped()) {
      arrived(number, place, k);
    }
  }
}

// All dependencies are met and the local data is there: encode and copy where needed, then send.
void Engine::slice_unblocked(std::uint32_t number, Place place, const Item& item, std::uint32_t k) {
  const Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  if (run.ready[index.lanes[place.lane].src.index()] == 0) {
    return;
  }
  if (is_lossy(index, item) && item.encoding == plan::EncodingKind::kOwn) {
    encode(number, place, item, k);
  } else if (!run.copies_out) {
    try_send(run.lanes[place.lane].channel);
  } else if (is_encoded(run, item, k)) {
    stage(number, place, item, k);
  }
}

void Engine::encode(std::uint32_t number, Place place, const Item& item, std::uint32_t k) {
  const GraphIndex& index = *runs_[number].index;
  const Rank rank = index.lanes[place.lane].src;
  const std::int64_t elements = slice_size(index, item, k);
  Duration duration = codec_time(rank, index, item.codec, elements, true);
  if (item.op == plan::TransferOp::kCopy) {
    // The sender goes on with what the others will decode.
    duration += codec_time(rank, index, item.codec, elements, false);
  }
  push_stream(ranks_[rank.index()].codec,
              {.kind = TaskKind::kEncode, .rank = rank, .run = number, .place = place, .slice = k},
              duration, ranks_[rank.index()].rates.wake);
}

void Engine::finish_encode(const Task& task) {
  Run& run = runs_[task.run];
  const Item own = run.index->item(task.place);
  run.encoded[own.first_slice + task.slice] = true;
  if (run.copies_out) {
    stage(task.run, task.place, own, task.slice);  // before those that share it
  }
  signal(task.run, task.place, task.slice, true);
  const GraphIndex& index = *runs_[task.run].index;
  stage(task.run, task.place, own, task.slice);
  const auto sharers = runs_[task.run].sharers.find(key(task.place));
  if (sharers != runs_[task.run].sharers.end()) {
    for (const Place sharer : sharers->second) {
      const Item item = index.item(sharer);
      if (runs_[task.run].met(item.first_slice + task.slice) == item.waits) {
        stage(task.run, sharer, item, task.slice);
      }
    }
  }
  next_in_stream(ranks_[task.rank.index()].codec);
}

void Engine::try_send(std::uint32_t number) {
  Channel& channel = channels_[number];
  for (std::size_t i = 0; i < channel.lanes.size() && !channel.is_busy;) {
    const auto [run, lane] = channel.lanes[i];
    const Run::LaneState& state = runs_[run].lanes[lane];
    if (state.position < state.count) {
      channel.is_busy = try_send_lane(number, run, lane);
      ++i;
    } else {
      channel.lanes.erase(i);
    }
  }
}

// Whether a slice to send is encoded, where it has to be.
bool Engine::is_encoded(const Run& run, const Item& item, std::uint32_t k) {
  const GraphIndex& index = *run.index;
  if (!is_lossy(index, item) || item.encoding == plan::EncodingKind::kForwarded) {
    return true;
  }
  const bool encodes = item.encoding == plan::EncodingKind::kOwn;
  const std::uint32_t first = encodes ? item.first_slice : index.item(item.encoded_by).first_slice;
  return run.encoded[first + k];
}

// Whether the next slice of a lane has its data, its dependencies, its encoding and its copy.
bool Engine::may_send(const Run& run, std::uint32_t lane) const {
  const GraphIndex& index = *run.index;
  const Run::LaneState& state = run.lanes[lane];
  const Item& item = state.next;
  if (run.ready[index.lanes[lane].src.index()] == 0 ||
      run.met(item.first_slice + state.slice) != item.waits) {
    return false;
  }
  return is_encoded(run, item, state.slice) &&
         (!run.copies_out || is_staged(run, {lane, state.position}, item, state.slice));
}

// The next slice of a lane is on its way.
void Engine::advance(Run& run, std::uint32_t lane) {
  Run::LaneState& state = run.lanes[lane];
  if (++state.slice == state.next.slices) {
    state.slice = 0;
    if (++state.position < state.count) {
      run.index->get({lane, state.position}, state.next);
    }
  }
}

bool Engine::try_send_lane(std::uint32_t channel, std::uint32_t number, std::uint32_t lane) {
  Run& run = runs_[number];
  if (!may_send(run, lane)) {
    return false;
  }
  const GraphIndex& index = *run.index;
  const Run::LaneState& state = run.lanes[lane];
  const Item& item = state.next;
  const std::uint32_t k = state.slice;
  if (item.group != kNoGroup) {
    return try_send_group(number, item.group, k);
  }
  const Place place{lane, state.position};
  const Rank src = index.lanes[lane].src;
  if (index.routes[item.route].pace > 0 && channels_[channel].next_departure > now_) {
    pause(channel,
          {.kind = TaskKind::kPaced, .rank = src, .run = number, .place = place, .slice = k});
    return false;  // what has no rate may go over the same links meanwhile
  }
  const bool sends_other_bytes = is_lossy(index, item) && item.encoding != plan::EncodingKind::kOwn;
  channels_[channel].is_busy = true;
  const Duration overhead = index.routes[item.route].overhead;
  if (overhead > Duration()) {
    begin({.kind = TaskKind::kOverhead, .rank = src, .run = number, .place = place, .slice = k},
          overhead);
  } else {
    send(src, number, place, k, item);
  }
  advance(run, lane);
  // Sent from memory of its own, so the buffer is free; its own encoding was signalled before.
  if (sends_other_bytes) {
    signal(number, place, k, true);
  }
  return true;
}

// Until what the task would send may leave, or what is more urgent by then.
void Engine::pause(std::uint32_t number, const Task& task) {
  Channel& channel = channels_[number];
  if (!std::exchange(channel.is_pausing, true)) {
    begin(task, Duration(channel.next_departure - now_));
  }
}

void Engine::finish_pause(const Task& task) {
  const std::uint32_t channel = runs_[task.run].lanes[task.place.lane].channel;
  channels_[channel].is_pausing = false;
  try_send(channel);
}

void Engine::finish_overhead(const Task& task) {
  Run& run = runs_[task.run];
  const Item item = run.index->item(task.place);
  if (item.group == kNoGroup) {
    send(task.rank, task.run, task.place, task.slice, item);
    return;
  }
  const auto open = run.group_overheads.find(group_key(item.group, task.slice));
  if (--open->second == 0) {
    run.group_overheads.erase(open);
    const Place first = run.index->groups[item.group].front();
    send(run.index->lanes[first.lane].src, task.run, first, task.slice, run.index->item(first));
  }
  next_in_stream(ranks_[task.rank.index()].messages);
}

// The bytes of a slice begin to move.
void Engine::send(Rank src, std::uint32_t number, Place place, std::uint32_t k, const Item& item) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  const std::int64_t bytes = slice_bytes(index, item, k);
  run.route_bytes[item.route] += bytes;
  const FlowTag tag = new_tag();
  Task& task = flying_[tag];
  task = {.kind = TaskKind::kWire, .rank = src, .run = number, .place = place, .slice = k};
  if (records_) {
    record(task);
  }
  const RouteUse& route = index.routes[item.route];
  if (work_left_) {
    work_left_->begin(route, bytes);
  }
  if (route.pace > 0) {
    Time& departure = channels_[run.lanes[place.lane].channel].next_departure;
    const Time of_slice =
        Duration::from_seconds(static_cast<double>(bytes) / route.pace).picoseconds();
    departure = plan::next_departure(departure, now_, of_slice, plan::kCatchUp.picoseconds());
  }
  if (route.shares.empty()) {
    network_->start(now_, bytes, route.links, route.rate_cap, tag);
  } else {
    network_->start_spread(now_, bytes, {route.links, route.shares, route.latency, route.rate_cap},
                           tag);
  }
}

Engine::Message Engine::message(const Task& task) const {
  const GraphIndex& index = *runs_[task.run].index;
  const Item item = index.item(task.place);
  return {Bytes(slice_bytes(index, item, task.slice)), &index.routes[item.route],
          index.lanes[task.place.lane].dst};
}

void Engine::finish_wire(const Task& task) {
  if (const std::span<const Place> members = group_of(task); !members.empty()) {
    finish_group_wire(task, members);
    return;
  }
  const GraphIndex& index = *runs_[task.run].index;
  const std::uint32_t channel = runs_[task.run].lanes[task.place.lane].channel;
  channels_[channel].is_busy = false;
  const bool sends_the_buffer = [&] {
    if (index.codecs.size() == 1 && !runs_[task.run].copies_out) {
      return true;
    }
    const Item item = index.item(task.place);
    return !is_lossy(index, item) && !is_copied_out(index, item);
  }();
  if (sends_the_buffer) {
    signal(task.run, task.place, task.slice, true);  // read to the end
  }
  count_down(task.run, task.rank);
  try_send(channel);
}

}  // namespace rackrail::sim
