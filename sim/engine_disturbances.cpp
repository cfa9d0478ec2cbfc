// What others do to the network: links that change, and messages beside the plan's.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "sim/engine.hpp"
#include "sim/engine_state.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim {

namespace {
// After so many messages of others without an event of the plan, it is looked whether anything of
// the plan still moves.
constexpr std::uint64_t kEventsBetweenLooks = 10'000;
constexpr Duration kLeastInterval = 1_us;
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
    require_possible(traffic, background_routes_.back());
    queue_.push(Time{0}, traffic.start.picoseconds(),
                Task{.kind = TaskKind::kBackground, .slice = i});
  }
}

// What asks for more than its route carries would fill the network without end, and tiny messages
// back to back the memory.
void Engine::require_possible(const BackgroundTraffic& traffic,
                              const std::vector<LinkId>& route) const {
  double carried = std::numeric_limits<double>::infinity();
  for (const LinkId link : route) {
    carried =
        std::min(carried, static_cast<double>(topology_.link(link).bandwidth.bytes_per_second()));
  }
  const auto bytes = static_cast<double>(traffic.message.count());
  const std::string where = fmt::format("from {} to {}", traffic.src.value(), traffic.dst.value());
  if (traffic.every > Duration() && bytes > 1.001 * carried * traffic.every.seconds()) {
    throw ConfigError(ErrorContext{
        "", "background " + where,
        fmt::format("{} every {}", to_string(traffic.message), to_string(traffic.every)),
        fmt::format("at most the {} that its route carries",
                    to_string(Bandwidth(static_cast<std::int64_t>(carried))))});
  }
  const auto cap = static_cast<double>(traffic.cap.bytes_per_second());
  const double rate = cap > 0 ? std::min(cap, carried) : carried;
  if (bytes < kLeastInterval.seconds() * rate && traffic.every < kLeastInterval) {
    throw ConfigError(ErrorContext{
        "", "background " + where,
        fmt::format("messages of {}, more than a million a second", to_string(traffic.message)),
        "larger ones, or fewer"});
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
  if (++background_since_ % kEventsBetweenLooks == 0 && is_held_for_good()) {
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
