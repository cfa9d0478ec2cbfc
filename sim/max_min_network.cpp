#include "sim/max_min_network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.hpp"

namespace rackrail::sim {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// What is within the rounding of the arithmetic does not cost another picosecond.
constexpr double kRelativeRounding = 1e-14;
constexpr double kAbsoluteRounding = 1e-6;

std::vector<double> capacities(const topology::Topology& topology) {
  std::vector<double> rates;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    rates.push_back(static_cast<double>(topology.link(LinkId(i)).bandwidth.bytes_per_second()) /
                    kPicosecondsPerSecond);
  }
  return rates;
}

}  // namespace

MaxMinNetwork::MaxMinNetwork(const topology::Topology& topology, double tolerance)
    : topology_(topology),
      tolerance_(tolerance),
      shares_(capacities(topology)),
      buckets_(topology),
      ends_(RememberPlace{&flows_}) {
  const std::vector<double> rates = capacities(topology);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    links_.push_back({rates[i], topology.link(LinkId(i)).latency.picoseconds(), kNobody});
  }
  for (const LinkId link : buckets_.links()) {
    links_[link.index()].user = kSolver;
    buckets_.set_rate(link, links_[link.index()].capacity, shares_);
  }
}

std::uint32_t MaxMinNetwork::new_flow() {
  if (free_.empty()) {
    flows_.emplace_back();
    return static_cast<std::uint32_t>(flows_.size() - 1);
  }
  const std::uint32_t number = free_.back();
  free_.pop_back();
  return number;
}

void MaxMinNetwork::start(Time now, std::int64_t bytes, std::span<const LinkId> links,
                          double rate_cap, FlowTag tag) {
  const std::uint32_t number = new_flow();
  Flow& flow = flows_[number];
  flow.remaining = static_cast<double>(bytes);
  flow.rate = kInfinite;
  if (rate_cap > 0) {
    flow.rate = rate_cap / kPicosecondsPerSecond;
    extras_[number].cap = flow.rate;
  }
  flow.latency = 0;
  flow.tag = tag;
  flow.first_link = links.data();
  flow.link_count = static_cast<std::uint16_t>(links.size());
  for (const LinkId id : links) {
    const LinkUse& link = links_[id.index()];
    flow.latency += link.latency;
    flow.rate = std::min(flow.rate, link.capacity);
  }
  join(number, now);
}

void MaxMinNetwork::start_spread(Time now, std::int64_t bytes, const SpreadPath& path,
                                 FlowTag tag) {
  const std::uint32_t number = new_flow();
  Flow& flow = flows_[number];
  flow.remaining = static_cast<double>(bytes);
  flow.rate = kInfinite;
  if (path.rate_cap > 0) {
    flow.rate = path.rate_cap / kPicosecondsPerSecond;
    extras_[number].cap = flow.rate;
  }
  extras_[number].shares = path.shares;
  flow.latency = path.latency.picoseconds();
  flow.tag = tag;
  flow.first_link = path.links.data();
  flow.link_count = static_cast<std::uint16_t>(path.links.size());
  for (std::size_t hop = 0; hop < path.links.size(); ++hop) {
    flow.rate = std::min(flow.rate, links_[path.links[hop].index()].capacity / path.shares[hop]);
  }
  join(number, now);
}

// A flow, with the rate that it would have alone, begins.
void MaxMinNetwork::join(std::uint32_t number, Time now) {
  Flow& flow = flows_[number];
  flow.order = static_cast<std::uint32_t>(started_++);
  flow.updated = now;
  flow.begun = now;
  if (flow.remaining == 0) {
    flow.link_count = 0;  // it takes nothing from anyone
    set_alone(number, now);
    return;
  }
  const auto links = flow.links();
  const bool is_alone = flow.rate > 0 && std::all_of(links.begin(), links.end(), [this](LinkId id) {
                          return links_[id.index()].user == kNobody;
                        });
  if (is_alone) {
    for (const LinkId id : links) {
      links_[id.index()].user = number;
    }
    set_alone(number, now);
    return;
  }
  flow.rate = 0;  // until the shares are solved
  for (const LinkId id : links) {
    const std::uint32_t user = links_[id.index()].user;
    if (user != kNobody && user != kSolver) {
      settle(flows_[user], now);
      share(user);
    }
  }
  share(number);
}

void MaxMinNetwork::set_capacity(Time now, LinkId id, Bandwidth capacity) {
  LinkUse& link = links_[id.index()];
  link.capacity = static_cast<double>(capacity.bytes_per_second()) / kPicosecondsPerSecond;
  if (link.user != kNobody && link.user != kSolver) {
    settle(flows_[link.user], now);
    share(link.user);
  }
  if (buckets_.has(id)) {
    buckets_.advance(now, shares_);
    buckets_.set_rate(id, link.capacity, shares_);
  } else {
    shares_.set_capacity(id, link.capacity);
  }
}

// Remaining bytes at another time.
void MaxMinNetwork::settle(Flow& flow, Time now) {
  const double moved =
      std::min(flow.remaining, flow.rate * static_cast<double>(now - flow.updated));
  if (pieces_ != nullptr && moved > 0) {
    pieces_->push_back({flow.tag, flow.updated, now, moved});
  }
  flow.remaining -= moved;
  flow.updated = now;
}

void MaxMinNetwork::settle_rates(Time now) {
  for (Flow& flow : flows_) {
    if (flow.state != State::kGone) {
      settle(flow, now);
    }
  }
}

// Of a flow that moves.
LinkId MaxMinNetwork::slowest_link(const Flow& flow) const {
  const auto links = flow.links();
  return *std::min_element(links.begin(), links.end(), [this](LinkId a, LinkId b) {
    return links_[a.index()].capacity < links_[b.index()].capacity;
  });
}

// Picoseconds until the last byte of a flow has left, at its present rate.
Time MaxMinNetwork::time_left(const Flow& flow, Time now) {
  if (flow.remaining != last_remaining_ || flow.rate != last_rate_) {
    last_remaining_ = flow.remaining;
    last_rate_ = flow.rate;
    const double exact = flow.remaining > 0 ? flow.remaining / flow.rate : 0;
    const double least =
        std::clamp(exact - exact * kRelativeRounding - kAbsoluteRounding, 0.0, kLongestTime);
    last_time_left_ = static_cast<Time>(std::ceil(least));
  }
  // A link may get faster before that time comes: see finish().
  return std::min(last_time_left_, static_cast<Time>(kLongestTime) - now);
}

void MaxMinNetwork::set_alone(std::uint32_t number, Time now) {
  Flow& flow = flows_[number];
  flow.state = State::kAlone;
  flow.end = ++ends_made_ == kDelivery ? ++ends_made_ : ends_made_;
  due_.push(now, time_left(flow, now), flow.tag, number, flow.end);
}

// Hands a flow over to the solver.
void MaxMinNetwork::share(std::uint32_t number) {
  Flow& flow = flows_[number];
  flow.state = State::kShares;
  flow.end = kNone;
  for (const LinkId id : flow.links()) {
    links_[id.index()].user = kSolver;
  }
  const auto found = extras_.find(number);
  const Extras extras = found == extras_.end() ? Extras() : found->second;
  shares_.add(number, flow.links(), extras.cap, extras.shares);
}

void MaxMinNetwork::set_rate(std::uint32_t number, double rate, Time now) {
  Flow& flow = flows_[number];
  settle(flow, now);
  flow.rate = rate;
  if (rate <= 0) {  // it stands still until a link of its route carries something again
    if (flow.end != kNone) {
      ends_.erase(flow.end);
      flow.end = kNone;
    }
    return;
  }
  const End end{now + time_left(flow, now), flow.order, number};
  if (flow.end == kNone) {
    ends_.push(end);
  } else {
    ends_.update(flow.end, end);
  }
}

// Whether it is the end of a flow that shares its links by now.
bool MaxMinNetwork::is_void(const Due& due) const {
  const Flow& flow = flows_[due.flow];
  return due.end_number != kDelivery && (flow.state != State::kAlone || flow.end != due.end_number);
}

// Whether what has changed must wait for more changes.
bool MaxMinNetwork::waits_to_solve(Time now) {
  if (solve_at_ == kNever) {
    solve_at_ = now + static_cast<Time>(tolerance_ * mean_time_);
  }
  return now < solve_at_;
}

Time MaxMinNetwork::next_event(Time now) {
  buckets_.advance(now, shares_);
  if (buckets_.close_empty(shares_)) {
    solve_at_ = now;  // the flows on such a link are too fast for it
  }
  if (shares_.is_stale() && !waits_to_solve(now)) {
    solve_at_ = kNever;
    buckets_.open(shares_);
    for (const FairShares::Flow flow : shares_.solve()) {
      set_rate(flow, shares_.rate(flow), now);
    }
  }
  while (!due_.empty() && is_void(due_.next())) {
    due_.pop();
  }
  Time next = std::min(solve_at_, buckets_.next_empty(now, shares_));
  if (!due_.empty()) {
    next = std::min(next, due_.next_time());
  }
  if (!ends_.empty()) {
    next = std::min(next, ends_.top().time);
  }
  return next == kNever ? -1 : next;
}

void MaxMinNetwork::take_events(Time now, std::vector<FlowEvent>& events) {
  buckets_.advance(now, shares_);
  while (!due_.empty() && due_.next_time() <= now) {
    const Due due = due_.pop();
    if (due.end_number == kDelivery) {
      events.push_back({due.tag, true});
    } else if (!is_void(due)) {
      finish(due.flow, now, events);
    }
  }
  const auto is_at_end = [&](const End& end) {
    const Time early = end.time - now;
    return early <= 0 || static_cast<double>(early) <=
                             tolerance_ * static_cast<double>(end.time - flows_[end.flow].begun);
  };
  const bool one_ends = !ends_.empty() && ends_.top().time <= now;
  while (one_ends && !ends_.empty() && is_at_end(ends_.top())) {
    const std::uint32_t number = ends_.top().flow;
    ends_.pop();
    finish(number, now, events);
  }
}

void MaxMinNetwork::finish(std::uint32_t number, Time now, std::vector<FlowEvent>& events) {
  Flow& flow = flows_[number];
  if (now >= static_cast<Time>(kLongestTime)) {
    throw SimulationError("a flow over " + topology_.link_name(slowest_link(flow)) +
                          " would end after more than 104 days of simulated time");
  }
  settle(flow, now);
  events.push_back({flow.tag, false});
  if (flow.latency == 0) {
    events.push_back({flow.tag, true});
  } else {
    due_.push(now, flow.latency, flow.tag, number, kDelivery);
  }
  if (flow.state == State::kShares) {
    constexpr double kWeight = 1.0 / 16;
    mean_time_ += kWeight * (static_cast<double>(now - flow.begun) - mean_time_);
    shares_.remove(number);
  }
  for (const LinkId id : flow.links()) {
    if ((flow.state == State::kAlone || shares_.is_idle(id)) && !buckets_.has(id)) {
      links_[id.index()].user = kNobody;
    }
  }
  if (!extras_.empty()) {
    extras_.erase(number);
  }
  flow.state = State::kGone;
  free_.push_back(number);
}

std::vector<HeldFlow> MaxMinNetwork::held_flows() const {
  std::vector<HeldFlow> held;
  for (const Flow& flow : flows_) {
    const auto links = flow.links();
    const auto dead = std::find_if(links.begin(), links.end(),
                                   [this](LinkId id) { return links_[id.index()].capacity <= 0; });
    if (flow.state == State::kGone || links.empty()) {
      continue;
    }
    if (dead != links.end()) {
      held.push_back({flow.tag, *dead});
    } else if (flow.rate > 0 &&
               static_cast<double>(flow.updated) + flow.remaining / flow.rate >= kLongestTime) {
      held.push_back({flow.tag, slowest_link(flow), true});
    }
  }
  return held;
}

std::vector<FlowBound> MaxMinNetwork::flow_bounds(Time now) const {
  std::vector<FlowBound> bounds;
  for (std::uint32_t number = 0; number < flows_.size(); ++number) {
    const Flow& flow = flows_[number];
    const auto extras = extras_.find(number);
    const bool is_spread = extras != extras_.end() && !extras->second.shares.empty();
    if (flow.state == State::kGone || flow.link_count == 0 || is_spread) {
      continue;
    }
    const LinkId slowest = slowest_link(flow);
    const double capacity = links_[slowest.index()].capacity;
    if (capacity > 0) {
      const auto at_once = static_cast<double>(topology_.link(slowest).burst.count());
      const double left = std::max(
          0.0, flow.remaining - at_once - flow.rate * static_cast<double>(now - flow.updated));
      bounds.push_back({flow.tag, slowest,
                        Bandwidth(std::llround(capacity * kPicosecondsPerSecond)),
                        left / capacity});
    }
  }
  return bounds;
}

double MaxMinNetwork::rate_of(FlowTag tag) const {
  const auto it = std::find_if(flows_.begin(), flows_.end(), [tag](const Flow& f) {
    return f.state != State::kGone && f.tag == tag;
  });
  return it == flows_.end() ? 0 : it->rate * kPicosecondsPerSecond;
}

}  // namespace rackrail::sim
