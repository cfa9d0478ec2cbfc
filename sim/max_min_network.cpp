#include "sim/max_min_network.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.hpp"

namespace rackrail::sim {

namespace {

constexpr double kPicosecondsPerSecond = 1e12;
constexpr double kLongestTime = 9.0e18;
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

MaxMinNetwork::MaxMinNetwork(const topology::Topology& topology)
    : shares_(capacities(topology)), ends_(RememberPlace{&flows_}) {}

void MaxMinNetwork::start(Time now, std::int64_t bytes, std::span<const LinkId> links,
                          double rate_cap, FlowTag tag) {
  std::uint32_t number = 0;
  if (free_.empty()) {
    number = static_cast<std::uint32_t>(flows_.size());
    flows_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  flows_[number] = {.remaining = static_cast<double>(bytes),
                    .updated = now,
                    .order = started_++,
                    .tag = tag,
                    .moves = true,
                    .shares = bytes > 0 && !links.empty()};
  const std::optional<double> cap =
      rate_cap > 0 ? std::optional(rate_cap / kPicosecondsPerSecond) : std::nullopt;
  if (flows_[number].shares) {
    shares_.add(number, links, cap);
  } else if (bytes > 0 && cap.has_value()) {
    set_rate(number, *cap, now);
  } else {
    set_end(number, now);
  }
}

void MaxMinNetwork::set_end(std::uint32_t number, Time end) {
  Flow& flow = flows_[number];
  if (flow.place == SIZE_MAX) {
    ends_.push({end, flow.order, number});
  } else {
    ends_.update(flow.place, {end, flow.order, number});
  }
}

void MaxMinNetwork::set_rate(std::uint32_t number, double rate, Time now) {
  Flow& flow = flows_[number];
  flow.remaining =
      std::max(0.0, flow.remaining - flow.rate * static_cast<double>(now - flow.updated));
  flow.updated = now;
  flow.rate = rate;
  const double exact = flow.remaining / rate;
  if (!(exact < kLongestTime - static_cast<double>(now))) {
    throw SimulationError("a flow would end after more than 106 days of simulated time");
  }
  const double rounded = std::ceil(exact - exact * kRelativeRounding - kAbsoluteRounding);
  set_end(number, now + std::max(Time{0}, static_cast<Time>(rounded)));
}

Time MaxMinNetwork::next_end(Time now) {
  if (shares_.is_stale()) {
    for (const FairShares::Change& change : shares_.solve()) {
      set_rate(change.flow, change.rate, now);
    }
  }
  return ends_.empty() ? -1 : ends_.top().time;
}

std::vector<FlowTag> MaxMinNetwork::take_ended(Time now) {
  std::vector<FlowTag> tags;
  while (!ends_.empty() && ends_.top().time <= now) {
    const std::uint32_t number = ends_.top().flow;
    ends_.pop();
    Flow& flow = flows_[number];
    tags.push_back(flow.tag);
    if (flow.shares) {
      shares_.remove(number);
    }
    flow.moves = false;
    flow.place = SIZE_MAX;
    free_.push_back(number);
  }
  return tags;
}

double MaxMinNetwork::rate_of(FlowTag tag) const {
  const auto it = std::find_if(flows_.begin(), flows_.end(),
                               [tag](const Flow& f) { return f.moves && f.tag == tag; });
  return it == flows_.end() ? 0 : it->rate * kPicosecondsPerSecond;
}

}  // namespace rackrail::sim
