// What the engine says to people: names of tasks, bytes of links, and what waits for what.
#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/engine_state.hpp"

namespace rackrail::sim {

void Engine::fail_stuck() const {
  std::vector<bool> is_free(flying_.size(), false);
  for (const std::uint32_t tag : free_tags_) {
    is_free[tag] = true;
  }
  for (FlowTag tag = 0; tag < flying_.size(); ++tag) {
    if (!is_free[tag] && is_of_plan(flying_[tag]) && !network_->is_moving(tag)) {
      const std::optional<LinkId> link = narrowest_link(flying_[tag]);
      throw SimulationError("the simulation can never end: " + describe(flying_[tag]) +
                            (link ? " on " + topology_.link_name(*link) : "") +
                            " stands still on a link without capacity");
    }
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
      throw SimulationError(fmt::format(
          "the simulation can never end: {} waits for {}, whose slice {} {}", run.name,
          index.describe(place), state.slice,
          missing > 0 ? fmt::format("waits for {} dependencies that are never met", missing)
                      : std::string("waits for data that never becomes ready")));
    }
  }
  throw SimulationError(
      "the simulation can never end: every slice has left, but one is never applied");
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
    case TaskKind::kDecode:
      return runs_[task.run].name + ": " + of_rank(task.rank, "decodes");
    case TaskKind::kReduce:
      return runs_[task.run].name + ": " + of_rank(task.rank, "adds");
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

std::optional<LinkId> Engine::narrowest_link(const Task& task) const {
  if (task.kind != TaskKind::kWire) {
    return std::nullopt;
  }
  const GraphIndex& index = *runs_[task.run].index;
  const RouteUse& route = index.routes[index.item(task.place).route];
  std::optional<LinkId> narrowest;
  double least = 0;
  for (std::size_t i = 0; i < route.links.size(); ++i) {
    const double rate = rate_alone(topology_, route, i);
    if (!narrowest || rate < least) {
      narrowest = route.links[i];
      least = rate;
    }
  }
  return narrowest;
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
    case TaskKind::kDecode:
      return "decode";
    case TaskKind::kReduce:
      return "add";
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
    case TaskKind::kReduce:
      return of_rank("reduce");
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
