// What others do to the network: links that change, and messages beside the plan's.
#include <algorithm>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/engine_state.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim {

namespace {
// After so many messages of others without an event of the plan, it is looked whether anything of
// the plan still moves.
constexpr std::uint64_t kPatience = 10'000;
}  // namespace

void Engine::schedule_disturbances() {
  for (std::uint32_t i = 0; i < disturbances_.capacity.size(); ++i) {
    queue_.push(Time{0}, disturbances_.capacity[i].at.picoseconds(),
                Task{.kind = TaskKind::kCapacityChange, .slice = i});
  }
  topology::Router router(topology_);
  for (std::uint32_t i = 0; i < disturbances_.background.size(); ++i) {
    const BackgroundTraffic& traffic = disturbances_.background[i];
    if (traffic.message < Bytes(1)) {
      throw SimulationError("background traffic with messages of no bytes would never end");
    }
    background_routes_.push_back(router.route(traffic.src, traffic.dst));
    queue_.push(Time{0}, traffic.start.picoseconds(),
                Task{.kind = TaskKind::kBackground, .slice = i});
  }
}

void Engine::disturb(const Task& task) {
  if (task.kind == TaskKind::kBackground) {
    send_background(task.slice);
    return;
  }
  const CapacityChange& change = disturbances_.capacity[task.slice];
  network_->set_capacity(now_, change.link, change.bandwidth);
}

void Engine::send_background(std::uint32_t number) {
  const BackgroundTraffic& traffic = disturbances_.background[number];
  const Task task{.kind = TaskKind::kBackground, .slice = number};
  const FlowTag tag = new_tag();
  flying_[tag] = task;
  network_->start(now_, traffic.message.count(), background_routes_[number],
                  static_cast<double>(traffic.cap.bytes_per_second()), tag);
  if (traffic.every > Duration()) {
    queue_.push(now_, traffic.every.picoseconds(), task);
  }
  if (++background_since_ % kPatience == 0 && is_held_for_good()) {
    fail_stuck();
  }
}

void Engine::background_left(std::uint32_t number) {
  if (disturbances_.background[number].every == Duration()) {
    send_background(number);
  }
}

// Whether all that the plan still waits for are flows that stand still, and no link changes again.
bool Engine::is_held_for_good() const {
  const bool changes_again =
      std::any_of(disturbances_.capacity.begin(), disturbances_.capacity.end(),
                  [&](const CapacityChange& change) { return change.at.picoseconds() > now_; });
  std::vector<bool> is_free(flying_.size(), false);
  for (const std::uint32_t tag : free_tags_) {
    is_free[tag] = true;
  }
  bool moves = false;
  for (FlowTag tag = 0; tag < flying_.size() && !moves; ++tag) {
    const bool is_plans = !is_free[tag] && is_of_plan(flying_[tag]);
    moves = is_plans && (flying_[tag].kind == TaskKind::kLatency || network_->is_moving(tag));
  }
  return !changes_again && !moves && own_queued_ == 0;
}

}  // namespace rackrail::sim
