#include "sim/max_min_network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace rackrail::sim {

namespace {
constexpr double kPicosecondsPerSecond = 1e12;
// Saturation is decided with this relative slack, so that links that fill up together (symmetric
// schedules) are fixed in one round.
constexpr double kSlack = 1e-9;
constexpr double kLongestTime = 9.0e18;
}  // namespace

MaxMinNetwork::MaxMinNetwork(const topology::Topology& topology) : links_(topology.link_count()) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    links_[i].capacity =
        static_cast<double>(topology.link(LinkId(i)).bandwidth.bytes_per_second()) /
        kPicosecondsPerSecond;
  }
}

void MaxMinNetwork::start(Time now, std::int64_t bytes, std::span<const LinkId> links,
                          double rate_cap, FlowTag tag) {
  std::uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<std::uint32_t>(flows_.size());
    flows_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Flow& flow = flows_[index];
  flow.remaining = static_cast<double>(bytes);
  flow.rate = 0;
  flow.cap = rate_cap / kPicosecondsPerSecond;
  flow.updated = now;
  flow.end = now;
  flow.order = started_++;
  flow.tag = tag;
  flow.links = links;
  flow.active = true;
  ++flow.version;
  flow.positions.resize(links.size());
  if (bytes == 0) {
    flow.links = {};
    flow.positions.clear();
    ends_.push({now, flow.order, index, flow.version});
    return;
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    auto& list = links_[links[i].index()].flows;
    flow.positions[i] = static_cast<std::uint32_t>(list.size());
    list.push_back(index);
    changed_links_.push_back(links[i].value());
  }
  if (links.empty()) {
    lone_flows_.push_back(index);
  }
}

void MaxMinNetwork::remove(std::uint32_t index) {
  Flow& flow = flows_[index];
  for (std::size_t i = 0; i < flow.links.size(); ++i) {
    auto& list = links_[flow.links[i].index()].flows;
    const std::uint32_t position = flow.positions[i];
    const std::uint32_t moved = list.back();
    list[position] = moved;
    list.pop_back();
    if (moved != index) {
      Flow& other = flows_[moved];
      for (std::size_t j = 0; j < other.links.size(); ++j) {
        if (other.links[j] == flow.links[i] && other.positions[j] == list.size()) {
          other.positions[j] = position;
          break;
        }
      }
    }
    changed_links_.push_back(flow.links[i].value());
  }
  flow.active = false;
  ++flow.version;
  free_.push_back(index);
}

void MaxMinNetwork::gather_component(std::uint32_t link) {
  component_flows_.clear();
  component_links_.assign(1, link);
  links_[link].visit = visit_;
  for (std::size_t i = 0; i < component_links_.size(); ++i) {
    for (const std::uint32_t f : links_[component_links_[i]].flows) {
      Flow& flow = flows_[f];
      if (flow.visit == visit_) {
        continue;
      }
      flow.visit = visit_;
      flow.fixed = false;
      component_flows_.push_back(f);
      for (const LinkId l : flow.links) {
        if (links_[l.index()].visit != visit_) {
          links_[l.index()].visit = visit_;
          component_links_.push_back(l.value());
        }
      }
    }
  }
}

void MaxMinNetwork::set_rate(Flow& flow, std::uint32_t index, double rate, Time now) {
  flow.fixed = true;
  const double gone = flow.rate * static_cast<double>(now - flow.updated);
  const bool same = flow.rate > 0 && std::fabs(rate - flow.rate) <= kSlack * flow.rate;
  if (same) {
    return;  // its end stands
  }
  flow.remaining = std::max(0.0, flow.remaining - gone);
  flow.updated = now;
  flow.rate = rate;
  const double duration = std::ceil(flow.remaining / rate);
  if (!(duration < kLongestTime - static_cast<double>(now))) {
    throw SimulationError("a flow would end after more than 106 days of simulated time");
  }
  flow.end = now + static_cast<Time>(duration);
  ++flow.version;
  ends_.push({flow.end, flow.order, index, flow.version});
}

void MaxMinNetwork::fill_component(Time now) {
  for (const std::uint32_t l : component_links_) {
    links_[l].left = links_[l].capacity;
    links_[l].unfixed = static_cast<std::uint32_t>(links_[l].flows.size());
  }
  std::size_t unfixed = component_flows_.size();
  while (unfixed > 0) {
    double level = std::numeric_limits<double>::infinity();
    for (const std::uint32_t l : component_links_) {
      if (links_[l].unfixed > 0) {
        level = std::min(level, std::max(0.0, links_[l].left) / links_[l].unfixed);
      }
    }
    for (const std::uint32_t f : component_flows_) {
      if (!flows_[f].fixed && flows_[f].cap > 0) {
        level = std::min(level, flows_[f].cap);
      }
    }
    const double threshold = level * (1 + kSlack);
    // Mark first, then take the rates off: the marks must not depend on the order of flows.
    std::vector<std::uint32_t> now_fixed;
    for (const std::uint32_t l : component_links_) {
      LinkState& link = links_[l];
      if (link.unfixed > 0 && std::max(0.0, link.left) <= threshold * link.unfixed) {
        for (const std::uint32_t f : link.flows) {
          if (!flows_[f].fixed) {
            flows_[f].fixed = true;
            now_fixed.push_back(f);
          }
        }
      }
    }
    for (const std::uint32_t f : component_flows_) {
      if (!flows_[f].fixed && flows_[f].cap > 0 && flows_[f].cap <= threshold) {
        flows_[f].fixed = true;
        now_fixed.push_back(f);
      }
    }
    for (const std::uint32_t f : now_fixed) {
      for (const LinkId l : flows_[f].links) {
        links_[l.index()].left -= level;
        --links_[l.index()].unfixed;
      }
      set_rate(flows_[f], f, level, now);
    }
    unfixed -= now_fixed.size();
  }
}

void MaxMinNetwork::solve_changed(Time now) {
  ++visit_;
  for (const std::uint32_t link : changed_links_) {
    if (links_[link].visit != visit_) {
      gather_component(link);
      fill_component(now);
    }
  }
  changed_links_.clear();
  for (const std::uint32_t index : lone_flows_) {
    Flow& flow = flows_[index];
    if (flow.cap > 0) {
      set_rate(flow, index, flow.cap, now);
    } else {
      ends_.push({now, flow.order, index, flow.version});
    }
  }
  lone_flows_.clear();
}

Time MaxMinNetwork::next_end(Time now) {
  if (!changed_links_.empty() || !lone_flows_.empty()) {
    solve_changed(now);
  }
  while (!ends_.empty()) {
    const End& end = ends_.top();
    const Flow& flow = flows_[end.flow];
    if (flow.active && flow.version == end.version) {
      return end.time;
    }
    ends_.pop();
  }
  return -1;
}

std::vector<FlowTag> MaxMinNetwork::take_ended(Time now) {
  std::vector<FlowTag> tags;
  while (!ends_.empty() && ends_.top().time <= now) {
    const End end = ends_.top();
    ends_.pop();
    Flow& flow = flows_[end.flow];
    if (!flow.active || flow.version != end.version) {
      continue;
    }
    tags.push_back(flow.tag);
    remove(end.flow);
  }
  return tags;
}

double MaxMinNetwork::rate_of(FlowTag tag) const {
  for (const Flow& flow : flows_) {
    if (flow.active && flow.tag == tag) {
      return flow.rate * kPicosecondsPerSecond;
    }
  }
  return 0;
}

}  // namespace rackrail::sim
