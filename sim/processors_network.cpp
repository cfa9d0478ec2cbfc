#include "sim/processors_network.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::sim {

ProcessorsNetwork::ProcessorsNetwork(const topology::Topology& topology,
                                     std::unique_ptr<NetworkModel> links)
    : links_(std::move(links)), processors_(topology), is_processor_(topology.link_count()) {
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    if (const auto processor = topology.processor_of(Rank(r))) {
      is_processor_[processor->index()] = true;
    }
  }
}

const ProcessorsNetwork::Parts& ProcessorsNetwork::parts_of(const SpreadPath& path) {
  const auto [at, is_new] = parts_.try_emplace(
      {{path.links.begin(), path.links.end()}, {path.shares.begin(), path.shares.end()}});
  Parts& parts = at->second;
  if (is_new) {
    for (std::size_t i = 0; i < path.links.size(); ++i) {
      Part& part = is_processor_[path.links[i].index()] ? parts.processors : parts.links;
      part.links.push_back(path.links[i]);
      part.shares.push_back(path.shares.empty() ? 1 : path.shares[i]);
    }
    for (Part* part : {&parts.links, &parts.processors}) {
      if (std::all_of(part->shares.begin(), part->shares.end(),
                      [](double share) { return share == 1; })) {
        part->shares.clear();
      }
    }
  }
  return parts;
}

void ProcessorsNetwork::start_parts(Time now, std::int64_t bytes, const SpreadPath& path,
                                    double rate_cap, FlowTag tag) {
  ++started_;
  const Parts& parts = parts_of(path);
  open_.resize(std::max<std::size_t>(open_.size(), tag + 1));
  open_[tag] = {};
  const auto start_part = [&](NetworkModel& model, const Part& part, Duration latency) {
    ++open_[tag].sending;
    ++open_[tag].under_way;
    if (part.shares.empty()) {
      model.start(now, bytes, part.links, rate_cap, tag);
    } else {
      model.start_spread(now, bytes, {part.links, part.shares, latency, rate_cap}, tag);
    }
  };
  if (!parts.processors.links.empty()) {
    start_part(processors_, parts.processors, {});
  }
  if (!parts.links.links.empty() || parts.processors.links.empty()) {
    start_part(*links_, parts.links, path.latency);
  }
}

void ProcessorsNetwork::start(Time now, std::int64_t bytes, std::span<const LinkId> links,
                              double rate_cap, FlowTag tag) {
  start_parts(now, bytes, {links, {}, {}}, rate_cap, tag);
}

void ProcessorsNetwork::start_spread(Time now, std::int64_t bytes, const SpreadPath& path,
                                     FlowTag tag) {
  start_parts(now, bytes, path, path.rate_cap, tag);
}

void ProcessorsNetwork::set_capacity(Time now, LinkId link, Bandwidth capacity) {
  if (is_processor_[link.index()]) {
    processors_.set_capacity(now, link, capacity);
  } else {
    links_->set_capacity(now, link, capacity);
  }
}

std::vector<HeldFlow> ProcessorsNetwork::held_flows() const {
  std::vector<HeldFlow> held = links_->held_flows();
  const std::vector<HeldFlow> on_processors = processors_.held_flows();
  held.insert(held.end(), on_processors.begin(), on_processors.end());
  return held;
}

std::vector<FlowBound> ProcessorsNetwork::flow_bounds(Time now) const {
  std::vector<FlowBound> bounds = links_->flow_bounds(now);
  const std::vector<FlowBound> on_processors = processors_.flow_bounds(now);
  bounds.insert(bounds.end(), on_processors.begin(), on_processors.end());
  return bounds;
}

Time ProcessorsNetwork::next_event(Time now) {
  const Time links = links_->next_event(now);
  const Time processors = processors_.next_event(now);
  return links < 0 ? processors : processors < 0 ? links : std::min(links, processors);
}

void ProcessorsNetwork::take_events(Time now, std::vector<FlowEvent>& events) {
  for (NetworkModel* model : {links_.get(), static_cast<NetworkModel*>(&processors_)}) {
    if (model->next_event(now) != now) {
      continue;
    }
    events_.clear();
    model->take_events(now, events_);
    for (const FlowEvent& event : events_) {
      Open& open = open_[event.tag];
      std::uint8_t& left = event.is_delivered ? open.under_way : open.sending;
      if (--left == 0) {
        events.push_back(event);
      }
    }
  }
}

}  // namespace rackrail::sim
