// Slices that switches copy or add: one flow over a tree of links for all members of a group.
//
// A member keeps its place on a lane of its own kind, so that groups over one tree leave in their
// order, and is signalled and counted at both ends like any other transfer. What all share is the
// start, when the last of them may go; the flow, whose task is that of the first member; and, of a
// reduction, the one addition at the root.
#include <algorithm>

#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

std::span<const Place> Engine::group_of(const Task& task) const {
  const Run& run = runs_[task.run];
  if (run.index->groups.empty()) {
    return {};
  }
  const std::uint32_t group = run.index->item(task.place).group;
  return group == kNoGroup ? std::span<const Place>() : run.index->groups[group];
}

// Sends slice k of all members, if each of them is the next of its lane and may go. From the last
// to the first: what starts them reaches them in their order, so most attempts fail at once.
bool Engine::try_send_group(std::uint32_t number, std::uint32_t group, std::uint32_t k) {
  Run& run = runs_[number];
  const GraphIndex& index = *run.index;
  const std::vector<Place>& members = index.groups[group];
  const bool all_may_go = std::all_of(members.rbegin(), members.rend(), [&](Place member) {
    const Run::LaneState& state = run.lanes[member.lane];
    return state.position == member.position && state.slice == k &&
           !channels_[state.channel].is_busy && may_send(run, member.lane);
  });
  if (!all_may_go) {
    return false;
  }
  const Place first = members.front();
  const Item item = index.item(first);
  for (const Place member : members) {
    channels_[run.lanes[member.lane].channel].is_busy = true;
    advance(run, member.lane);
  }
  const Rank src = index.lanes[first.lane].src;
  const Duration overhead = index.routes[item.route].overhead;
  if (overhead > Duration()) {
    // A multicast is one message of its root; of a reduction, each sender has one.
    const bool is_sum = index.lane_kinds[first.lane] == LaneKind::kReduction;
    const std::size_t messages = is_sum ? members.size() : 1;
    run.group_overheads[group_key(item.group, k)] = messages;
    for (std::size_t i = 0; i < messages; ++i) {
      const Rank sender = index.lanes[members[i].lane].src;
      push_stream(ranks_[sender.index()].messages,
                  {.kind = TaskKind::kOverhead,
                   .rank = sender,
                   .run = number,
                   .place = members[i],
                   .slice = k},
                  overhead, {});
    }
  } else {
    send(src, number, first, k, item);
  }
  for (const Place member : members) {
    const Item sent = index.item(member);
    if (is_lossy(index, sent) && sent.encoding != plan::EncodingKind::kOwn) {
      signal(number, member, k, true);
    }
  }
  return true;
}

void Engine::finish_group_wire(const Task& task, std::span<const Place> members) {
  const auto channel_of = [&](Place member) { return runs_[task.run].lanes[member.lane].channel; };
  const GraphIndex& index = *runs_[task.run].index;
  for (const Place member : members) {
    channels_[channel_of(member)].is_busy = false;
  }
  for (const Place member : members) {
    if (!is_lossy(index, index.item(member))) {
      signal(task.run, member, task.slice, true);
    }
    count_down(task.run, index.lanes[member.lane].src);
  }
  for (const Place member : members) {
    try_send(channel_of(member));
  }
}

// The last byte of a slice is there, at every receiver.
void Engine::delivered(const Task& task) {
  const std::span<const Place> members = group_of(task);
  if (members.empty() ||
      runs_[task.run].index->lane_kinds[task.place.lane] == LaneKind::kReduction) {
    received(task.run, task.place, task.slice);
    return;
  }
  for (const Place member : members) {
    received(task.run, member, task.slice);
  }
}

// A slice is decoded, or added to the buffer: with it those that came in the same sum.
void Engine::applied(const Task& task) {
  const std::span<const Place> members = group_of(task);
  if (members.empty() || task.kind == TaskKind::kDecode) {
    signal(task.run, task.place, task.slice, false);
    return;
  }
  for (const Place member : members) {
    signal(task.run, member, task.slice, false);
  }
}

}  // namespace rackrail::sim
