// What others do to the network: links that change, and messages beside the plan's.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "sim/engine.hpp"
#include "sim/engine_state.hpp"
#include "sim/results.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim {

namespace {
// After so many messages of others without an event of the plan, it is looked whether anything of
// the plan still moves.
constexpr std::uint64_t kEventsBetweenLooks = 10'000;
constexpr Duration kLeastInterval = 1_us;
constexpr double kRoundingOfRates = 1.001;
// So many messages of one stream at the same time mean that its links do not keep up, for good or
// for a very long time. Each of them costs time whenever another one starts or ends.
constexpr std::uint32_t kMostUnderWay = 4096;
// What messages of others cost, in events: at the packet level two per packet and link, at the flow
// level about as much time as so many of those. After the first number of them it is looked whether
// a flow of the plan takes longer than the second number would; a few minutes of computing.
constexpr double kEventsPerFluid = 16;
constexpr double kEventsBeforeLook = 1 << 20;
constexpr double kMostEvents = 4e9;
}  // namespace

void Engine::schedule_disturbances() {
  for (std::uint32_t i = 0; i < disturbances_.capacity.size(); ++i) {
    queue_.push(Time{0}, disturbances_.capacity[i].at.picoseconds(),
                Task{.kind = TaskKind::kCapacityChange, .slice = i});
  }
  topology::Router router(topology_, distance_);
  for (std::uint32_t i = 0; i < disturbances_.background.size(); ++i) {
    const BackgroundTraffic& traffic = disturbances_.background[i];
    if (traffic.message < Bytes(1)) {
      throw SimulationError("background traffic with messages of no bytes would never end");
    }
    background_routes_.push_back(router.route(traffic.src, traffic.dst));
    require_large_enough(traffic, background_routes_.back());
    queue_.push(Time{0}, traffic.start.picoseconds(),
                Task{.kind = TaskKind::kBackground, .slice = i});
  }
  background_under_way_.assign(disturbances_.background.size(), 0);
  if (!disturbances_.background.empty()) {
    require_possible_together();
  }
}

// Tiny messages back to back would fill the memory.
void Engine::require_large_enough(const BackgroundTraffic& traffic,
                                  const std::vector<LinkId>& route) const {
  double carried = std::numeric_limits<double>::infinity();
  for (const LinkId link : route) {
    carried =
        std::min(carried, static_cast<double>(topology_.link(link).bandwidth.bytes_per_second()));
  }
  const auto cap = static_cast<double>(traffic.cap.bytes_per_second());
  const double rate = cap > 0 ? std::min(cap, carried) : carried;
  if (static_cast<double>(traffic.message.count()) < kLeastInterval.seconds() * rate &&
      traffic.every < kLeastInterval) {
    throw ConfigError(ErrorContext{
        "", fmt::format("background from {} to {}", traffic.src.value(), traffic.dst.value()),
        fmt::format("messages of {}, more than a million a second", to_string(traffic.message)),
        "larger ones, or fewer"});
  }
}

// What streams that wait for nobody ask of a link, in bytes per second.
double Engine::background_asked(LinkId link) const {
  double sum = 0;
  for (std::size_t i = 0; i < background_routes_.size(); ++i) {
    const BackgroundTraffic& traffic = disturbances_.background[i];
    const std::vector<LinkId>& route = background_routes_[i];
    if (traffic.every > Duration() && std::find(route.begin(), route.end(), link) != route.end()) {
      sum += static_cast<double>(traffic.message.count()) / traffic.every.seconds();
    }
  }
  return sum;
}

// Streams that together ask for more than a link ever carries would fill the network without end.
void Engine::require_possible_together() const {
  const topology::Topology best =
      at_best(topology_, disturbances_, Duration(std::numeric_limits<Time>::max()));
  for (const std::vector<LinkId>& route : background_routes_) {
    for (const LinkId link : route) {
      const Bandwidth carried = best.link(link).bandwidth;
      if (background_asked(link) >
          kRoundingOfRates * static_cast<double>(carried.bytes_per_second())) {
        fail_overloaded(
            link, fmt::format("at most the {} that it carries at its best", to_string(carried)));
      }
    }
  }
}

void Engine::fail_overloaded(LinkId link, const std::string& expected) const {
  std::string streams;
  for (std::size_t i = 0; i < background_routes_.size(); ++i) {
    const BackgroundTraffic& traffic = disturbances_.background[i];
    const std::vector<LinkId>& route = background_routes_[i];
    if (traffic.every > Duration() && std::find(route.begin(), route.end(), link) != route.end()) {
      streams += fmt::format("{}{} every {} from {} to {}", streams.empty() ? "" : ", ",
                             to_string(traffic.message), to_string(traffic.every),
                             traffic.src.value(), traffic.dst.value());
    }
  }
  throw ConfigError(
      ErrorContext{"", "background over " + topology_.link_name(link), streams, expected});
}

// More and more messages of a stream are under way: of its route the link that lacks most is named.
void Engine::fail_filled(std::uint32_t number) const {
  const Duration now(now_);
  std::optional<LinkId> fullest;
  double most_lacking = 0;
  for (const LinkId link : background_routes_[number]) {
    const double carried =
        mean_rate(topology_, disturbances_, link, Duration(), std::max(now, Duration(1)));
    const double lacking = background_asked(link) - carried;
    if (!fullest || lacking > most_lacking) {
      fullest = link;
      most_lacking = lacking;
    }
  }
  const double carried =
      mean_rate(topology_, disturbances_, *fullest, Duration(), std::max(now, Duration(1)));
  fail_overloaded(
      *fullest,
      fmt::format("fewer than the {} messages under way that there are from {} to {} after {}, in "
                  "which the link carried {} on average",
                  kMostUnderWay, disturbances_.background[number].src.value(),
                  disturbances_.background[number].dst.value(), to_string(now),
                  to_string(Bandwidth(static_cast<std::int64_t>(carried)))));
}

// Whether a link of a stream's route carries nothing now, and never again.
bool Engine::is_cut_for_good(std::uint32_t number) const {
  const std::vector<LinkId>& route = background_routes_[number];
  return std::any_of(route.begin(), route.end(), [&](LinkId link) {
    const auto last =
        std::find_if(disturbances_.capacity.rbegin(), disturbances_.capacity.rend(),
                     [link](const CapacityChange& change) { return change.link == link; });
    return last != disturbances_.capacity.rend() && last->bandwidth == Bandwidth(0) &&
           last->at.picoseconds() <= now_;
  });
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
  if (background_under_way_[number] == kMostUnderWay) {
    if (is_cut_for_good(number)) {
      return;  // those that stand before the cut are enough
    }
    fail_filled(number);
  }
  ++background_under_way_[number];
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
  --background_under_way_[number];
  add_others_work(number);
  if (disturbances_.background[number].every == Duration()) {
    send_background(number);
  }
}

void Engine::add_others_work(std::uint32_t number) {
  const std::int64_t bytes = disturbances_.background[number].message.count();
  const auto links = static_cast<double>(background_routes_[number].size());
  others_work_ +=
      packet_bytes_ == 0
          ? kEventsPerFluid
          : 2 * links * static_cast<double>((bytes + packet_bytes_ - 1) / packet_bytes_);
  if (others_work_ >= kEventsBeforeLook) {
    require_end_in_sight();
    others_work_ = 0;
    others_from_ = now_;
  }
}

// A message of the plan over a link that carries hardly anything may take days of simulated time,
// in which others send at full rate: a simulation that ends, but nobody would see it.
void Engine::require_end_in_sight() const {
  Time until = std::numeric_limits<Time>::max();  // the next change of a link
  for (const CapacityChange& change : disturbances_.capacity) {
    if (change.at.picoseconds() > now_) {
      until = std::min(until, change.at.picoseconds());
    }
  }
  const std::vector<bool> is_plans = plan_flows();
  std::optional<FlowBound> latest;
  for (const FlowBound& bound : network_->flow_bounds(now_)) {
    if (is_plans[bound.tag] && (!latest || bound.least > latest->least)) {
      latest = bound;
    }
  }
  const auto passed = static_cast<double>(std::max<Time>(now_ - others_from_, 1));
  if (!latest ||
      others_work_ / passed * std::min(latest->least, static_cast<double>(until - now_)) <
          kMostEvents) {
    return;
  }
  Task task = flying_[latest->tag];
  task.kind = task.kind == TaskKind::kLatency ? TaskKind::kWire : task.kind;
  const double left = std::min(latest->least, kLongestTime);
  throw SimulationError(fmt::format(
      "the simulation would take too long: {} on {}, which carries {}, needs {} more of simulated "
      "time, and in each second of it others' messages take {:.1g} events: let the link carry more "
      "or the others less{}",
      describe(task), topology_.link_name(latest->link), to_string(latest->rate),
      to_string(Duration(static_cast<Time>(left))), others_work_ / passed * kPicosecondsPerSecond,
      packet_bytes_ == 0 ? "" : ", or simulate the flow level"));
}

// By tag: whether a flow of the plan has it.
std::vector<bool> Engine::plan_flows() const {
  std::vector<bool> is_plans(flying_.size());
  std::transform(flying_.begin(), flying_.end(), is_plans.begin(), is_of_plan);
  for (const std::uint32_t tag : free_tags_) {
    is_plans[tag] = false;
  }
  return is_plans;
}

// Whether all that the plan still waits for are flows that stand still, and no link changes again.
bool Engine::is_held_for_good() const {
  const bool changes_again =
      std::any_of(disturbances_.capacity.begin(), disturbances_.capacity.end(),
                  [&](const CapacityChange& change) { return change.at.picoseconds() > now_; });
  if (changes_again || own_queued_ > 0) {
    return false;
  }
  std::vector<bool> moves = plan_flows();
  for (const HeldFlow& held : network_->held_flows()) {
    moves[held.tag] = false;
  }
  return std::find(moves.begin(), moves.end(), true) == moves.end();
}

// Of the plan's flows that stand still, the one of the lowest tag.
std::optional<HeldFlow> Engine::first_held() const {
  const std::vector<bool> is_plans = plan_flows();
  std::optional<HeldFlow> first;
  for (const HeldFlow& held : network_->held_flows()) {
    if (is_plans[held.tag] && (!first || held.tag < first->tag)) {
      first = held;
    }
  }
  return first;
}

}  // namespace rackrail::sim
