// What the engine says to people: names of tasks, bytes of links, and what waits for what.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

void Engine::fail_stuck() const {
  if (const std::optional<HeldFlow> held = first_held()) {
    Task task = flying_[held->tag];
    task.kind = task.kind == TaskKind::kLatency ? TaskKind::kWire : task.kind;
    throw SimulationError("the simulation can never end: " + describe(task) + " on " +
                          topology_.link_name(held->link) +
                          (held->moves ? " would take more than 104 days of simulated time"
                                       : " stands still on a link without capacity"));
  }
  for (const std::uint32_t number : runs_.numbers()) {
    const Run& run = runs_[number];
    const GraphIndex& index = *run.index;
    for (std::uint32_t lane = 0; lane < index.lanes.size(); ++lane) {
      const Run::LaneState& state = run.lanes[lane];
      if (state.position >= index.lanes[lane].count) {
        continue;
      }
      const Place place{lane, state.position};
      const Item item = index.item(place);
      const std::uint32_t missing = item.waits - run.met(item.first_slice + state.slice);
      throw SimulationError(
          fmt::format("the simulation can never end: {} waits for {}, whose slice {} waits for {}",
                      run.name, index.describe(place), state.slice,
                      missing > 0 ? what_blocks(run, place) : "data that never becomes ready"));
    }
  }
  throw SimulationError(
      "the simulation can never end: every slice has left, but one is never applied");
}

// Of what has not left, something that a transfer waits for. Nobody keeps that: the transfers know
// who waits for them.
std::optional<Place> Engine::waited_for(const Run& run, Place place) {
  std::vector<Dependent> scratch;
  for (std::uint32_t lane = 0; lane < run.lanes.size(); ++lane) {
    for (Place other{lane, run.lanes[lane].position}; other.position < run.index->lanes[lane].count;
         ++other.position) {
      for (const bool at_source : {true, false}) {
        for (const Dependent& dependent : run.index->dependents(other, at_source, scratch)) {
          if (key(dependent.place) == key(place)) {
            return other;
          }
        }
      }
    }
  }
  return std::nullopt;
}

// "transfer 5 (rank 1 to rank 2), which waits for transfer 3 (rank 2 to rank 0)", as far as that
// goes; no more than eight.
std::string Engine::what_blocks(const Run& run, Place place) {
  constexpr int kMostNamed = 8;
  const GraphIndex& index = *run.index;
  std::string text;
  const auto name = [&](Place next, const char* relation) {
    text += (text.empty() ? "" : fmt::format(", which {} ", relation)) + index.describe(next);
    place = next;
  };
  for (int named = 0; named < kMostNamed; ++named) {
    if (const std::vector<Place> unseen = index.unseen(place); !unseen.empty()) {
      const Rank sender = index.lanes[place.lane].src;
      name(unseen.front(), "waits for");
      return text + fmt::format(", of which rank {} is not told", sender.value());
    }
    const std::optional<Place> next = waited_for(run, place);
    if (!next) {
      return text.empty() ? "dependencies that are never met" : text;
    }
    name(*next, "waits for");
    const std::uint32_t first = run.lanes[place.lane].position;
    if (place.position > first) {
      name({place.lane, first}, "is to follow");
    }
  }
  return text;
}

std::string Engine::describe(const Task& task) const {
  const auto of_rank = [](Rank rank, const char* what) {
    return fmt::format("rank {} {}", rank.value(), what);
  };
  switch (task.kind) {
    case TaskKind::kStart:
      return of_rank(task.rank, "has not started");
    case TaskKind::kLoad:
      return of_rank(task.rank, "loads data");
    case TaskKind::kForward:
      return of_rank(task.rank, "forward");
    case TaskKind::kBackward:
      return of_rank(task.rank, "backward");
    case TaskKind::kOptimizer:
      return of_rank(task.rank, "optimiser");
    case TaskKind::kEncode:
      return runs_[task.run].name + ": " + of_rank(task.rank, "encodes");
    case TaskKind::kCopyOut:
      return runs_[task.run].name + ": " + of_rank(task.rank, "copies to host memory");
    case TaskKind::kCopyIn:
      return runs_[task.run].name + ": " + of_rank(task.rank, "copies from host memory");
    case TaskKind::kDecode:
      return runs_[task.run].name + ": " + of_rank(task.rank, "decodes");
    case TaskKind::kReduce:
      return runs_[task.run].name + ": " + of_rank(task.rank, "adds");
    case TaskKind::kPaced:
    case TaskKind::kOverhead:
    case TaskKind::kWire:
    case TaskKind::kLatency:
    case TaskKind::kReceive:
    case TaskKind::kCapacityChange:
    case TaskKind::kBackground:
      break;
  }
  const GraphIndex& index = *runs_[task.run].index;
  const Lane& lane = index.lanes[task.place.lane];
  std::string src = fmt::format("rank {}", lane.src.value());
  std::string dst = fmt::format("rank {}", lane.dst.value());
  if (const auto members = group_of(task); !members.empty()) {
    const bool copies = index.lane_kinds[task.place.lane] == LaneKind::kMulticast;
    (copies ? dst : src) = fmt::format("{} ranks", members.size());
  }
  const std::string pair = fmt::format("{}: {} → {}", runs_[task.run].name, src, dst);
  return task.kind == TaskKind::kWire ? pair : fmt::format("{} {}", pair, name_of(task.kind));
}

std::string_view name_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::kStart:
      return "start";
    case TaskKind::kLoad:
      return "load data";
    case TaskKind::kForward:
      return "forward";
    case TaskKind::kBackward:
      return "backward";
    case TaskKind::kOptimizer:
      return "optimiser";
    case TaskKind::kEncode:
      return "encode";
    case TaskKind::kCopyOut:
      return "copy to host memory";
    case TaskKind::kCopyIn:
      return "copy from host memory";
    case TaskKind::kDecode:
      return "decode";
    case TaskKind::kReduce:
      return "add";
    case TaskKind::kPaced:
      return "held to its rate";
    case TaskKind::kOverhead:
      return "message overhead";
    case TaskKind::kLatency:
      return "latency";
    case TaskKind::kReceive:
      return "receive overhead";
    case TaskKind::kWire:
    case TaskKind::kCapacityChange:
    case TaskKind::kBackground:
      break;
  }
  return "wire";
}

std::string Engine::track(const Task& task) const {
  const auto of_rank = [&](const char* what) {
    return fmt::format("rank {} {}", task.rank.value(), what);
  };
  switch (task.kind) {
    case TaskKind::kLoad:
      return of_rank("loader");
    case TaskKind::kStart:
    case TaskKind::kForward:
    case TaskKind::kBackward:
    case TaskKind::kOptimizer:
      return of_rank("compute");
    case TaskKind::kEncode:
    case TaskKind::kDecode:
      return of_rank("codec");
    case TaskKind::kCopyOut:
      return of_rank("copies to host memory");
    case TaskKind::kCopyIn:
      return of_rank("copies from host memory");
    case TaskKind::kReduce:
      return of_rank("reduce");
    case TaskKind::kPaced:
    case TaskKind::kOverhead:
    case TaskKind::kWire:
    case TaskKind::kLatency:
    case TaskKind::kReceive:
    case TaskKind::kCapacityChange:
    case TaskKind::kBackground:
      break;
  }
  return of_rank("network");
}

void Engine::add_bytes(const Run& run, std::vector<Bytes>& bytes) const {
  for (std::size_t route = 0; route < run.route_bytes.size(); ++route) {
    const RouteUse& use = run.index->routes[route];
    const auto sent = static_cast<double>(run.route_bytes[route]);
    for (std::size_t i = 0; i < use.links.size(); ++i) {
      bytes[use.links[i].index()] += Bytes(std::llround(sent * share_of(use, i)));
    }
  }
}

std::vector<Bytes> Engine::link_bytes(std::span<const std::uint32_t> runs) const {
  std::vector<Bytes> bytes(topology_.link_count());
  for (const std::uint32_t run : runs) {
    add_bytes(runs_[run], bytes);
  }
  return bytes;
}

std::vector<Bytes> Engine::link_bytes() const {
  std::vector<Bytes> bytes = link_bytes(runs_.numbers());
  for (std::size_t i = 0; i < dropped_bytes_.size(); ++i) {
    bytes[i] += dropped_bytes_[i];
  }
  return bytes;
}

}  // namespace rackrail::sim
