#include "sim/fair_shares.hpp"

#include <algorithm>

namespace rackrail::sim {

namespace {
constexpr int kPatience = 6;
}  // namespace

FairShares::FairShares(std::span<const double> capacities)
    : links_(capacities.size()), filling_(capacities.size()) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    links_[i].capacity = capacities[i];
  }
}

void FairShares::add(Flow number, std::span<const LinkId> links, std::optional<double> cap,
                     std::span<const double> shares) {
  if (number >= flows_.size()) {
    flows_.resize(std::size_t{number} + 1);
    open_.resize(flows_.size());
  }
  if (links.size() > stride_) {
    const std::size_t wider = std::max(links.size(), 2 * stride_);
    std::vector<std::uint32_t> places(flows_.size() * wider);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      places[i / stride_ * wider + i % stride_] = places_[i];
    }
    places_ = std::move(places);
    stride_ = wider;
  }
  if (places_.size() < flows_.size() * stride_) {
    places_.resize(flows_.size() * stride_);
  }
  FlowState& flow = flows_[number];
  flow.links = links.data();
  flow.shares = shares.empty() ? nullptr : shares.data();
  flow.link_count = static_cast<std::uint16_t>(links.size());
  flow.bottleneck = kNone;
  flow.rate = 0;
  flow.cap = cap.value_or(kInfinite);
  flow.is_new = true;
  std::uint32_t* places = &places_[number * stride_];
  for (std::uint32_t hop = 0; hop < flow.link_count; ++hop) {
    std::vector<Member>& members = links_[links[hop].index()].flows;
    places[hop] = static_cast<std::uint32_t>(members.size());
    members.push_back({number, hop});
  }
  added_.push_back(number);
}

void FairShares::remove(Flow number) {
  FlowState& flow = flows_[number];
  const std::uint32_t held_by = flow.bottleneck;
  const std::uint32_t* places = &places_[number * stride_];
  if (held_by != kNone) {
    --links_[held_by].bottlenecked;
  }
  for (std::uint32_t hop = 0; hop < flow.link_count; ++hop) {
    LinkState& link = links_[flow.links[hop].index()];
    const Member moved = link.flows.back();
    link.flows[places[hop]] = moved;
    places_[moved.flow * stride_ + moved.hop] = places[hop];
    link.flows.pop_back();
    link.used -= flow.rate * share_of(flow, hop);
    changed_use(link);
    if (link.bottlenecked > 0 && !link.is_freed) {
      link.is_freed = true;
      freed_.push_back(flow.links[hop].value());
    }
  }
  flow.bottleneck = kNone;
}

void FairShares::set_capacity(LinkId link, double capacity) {
  links_[link.index()].capacity = capacity;
  if (!is_idle(link)) {
    resized_.push_back(link.value());
  }
}

// Sums of changes drift from the sum of what is there, so now and then it is summed up again.
void FairShares::changed_use(LinkState& link) const {
  if (link.flows.empty()) {
    link.used = 0;
  } else if (++link.age == 0) {
    link.used = 0;
    for (const Member& member : link.flows) {
      const FlowState& flow = flows_[member.flow];
      link.used += flow.rate * share_of(flow, member.hop);
    }
  }
}

std::span<const FairShares::Flow> FairShares::solve() {
  changed_.clear();
  if (++solve_ == 0) {  // once around: no old mark may look new
    for (FlowState& flow : flows_) {
      flow.region = 0;
    }
    std::ranges::fill(open_, 0);
    for (LinkState& link : links_) {
      link.region = 0;
    }
    solve_ = 1;
  }
  region_flows_.clear();
  region_links_.clear();
  for (const std::uint32_t link : freed_) {
    links_[link].is_freed = false;
    include_bottlenecked(link);
  }
  freed_.clear();
  for (const std::uint32_t link : resized_) {
    for (const Member& member : links_[link].flows) {
      include(member.flow);
    }
  }
  resized_.clear();
  for (const Flow flow : added_) {
    if (is_alone(flows_[flow])) {
      solve_alone(flow);
    } else {
      include(flow);
    }
  }
  for (const Flow flow : added_) {
    if (flows_[flow].region == solve_) {
      for (const LinkId link : links_of(flows_[flow])) {
        include_bottlenecked(link.value());
      }
    }
  }
  added_.clear();
  if (!region_flows_.empty()) {
    fill();
    for (int round = 1; grow(); ++round) {
      if (round >= kPatience) {
        include_connected();
      }
      fill();
    }
    commit();
  }
  return changed_;
}

bool FairShares::is_alone(const FlowState& flow) const {
  const auto links = links_of(flow);
  return std::all_of(links.begin(), links.end(),
                     [this](LinkId link) { return links_[link.index()].flows.size() == 1; });
}

void FairShares::solve_alone(Flow number) {
  FlowState& flow = flows_[number];
  flow.is_new = false;
  flow.rate = flow.cap;
  for (std::size_t hop = 0; hop < flow.link_count; ++hop) {
    const double most = links_[flow.links[hop].index()].capacity / share_of(flow, hop);
    if (most < flow.rate) {
      flow.rate = most;
      flow.bottleneck = flow.links[hop].value();
    }
  }
  for (std::size_t hop = 0; hop < flow.link_count; ++hop) {
    links_[flow.links[hop].index()].used = flow.rate * share_of(flow, hop);
  }
  if (flow.bottleneck != kNone) {
    links_[flow.bottleneck].level = flow.rate;
    links_[flow.bottleneck].bottlenecked = 1;
  }
  changed_.push_back(number);
}

void FairShares::include(Flow number) {
  FlowState& flow = flows_[number];
  if (flow.region == solve_) {
    return;
  }
  flow.region = solve_;
  region_flows_.push_back(number);
  each_link(flow, [&](std::uint32_t at, double share) {
    LinkState& link = links_[at];
    if (link.region != solve_) {
      link.region = solve_;
      link.region_flows = 0;
      link.region_weight = 0;
      link.region_bottlenecked = 0;
      link.outside = link.used;
      region_links_.push_back(at);
    }
    ++link.region_flows;
    link.region_weight += share;
    link.outside -= flow.rate * share;
  });
  if (flow.bottleneck != kNone) {
    ++links_[flow.bottleneck].region_bottlenecked;
  }
}

void FairShares::include_bottlenecked(std::uint32_t number) {
  const LinkState& link = links_[number];
  if (link.bottlenecked == 0 ||
      (link.region == solve_ && link.region_bottlenecked == link.bottlenecked)) {
    return;
  }
  for (const Member& member : link.flows) {
    if (flows_[member.flow].bottleneck == number) {
      include(member.flow);
    }
  }
}

void FairShares::include_connected() {
  for (std::size_t i = 0; i < region_links_.size(); ++i) {
    const LinkState& link = links_[region_links_[i]];
    if (link.bottlenecked > 0 || filling_[region_links_[i]].left <= kSlack * link.capacity) {
      for (const Member& member : link.flows) {
        include(member.flow);
      }
    }
  }
}

}  // namespace rackrail::sim
