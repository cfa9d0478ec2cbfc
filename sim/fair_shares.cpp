#include "sim/fair_shares.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rackrail::sim {

namespace {
constexpr double kSlack = 1e-9;
constexpr double kRounding = 1e-12;
constexpr int kPatience = 6;
constexpr std::uint32_t kIsFlow = 1U << 31U;
constexpr double kInfinite = std::numeric_limits<double>::infinity();
}  // namespace

FairShares::FairShares(std::span<const double> capacities) : links_(capacities.size()) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    links_[i].capacity = capacities[i];
  }
}

void FairShares::add(Flow number, std::span<const LinkId> links, std::optional<double> cap,
                     std::span<const double> shares) {
  if (number >= flows_.size()) {
    flows_.resize(std::size_t{number} + 1);
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
  for (std::size_t hop = 0; hop < flow.link_count; ++hop) {
    const LinkId id = flow.links[hop];
    LinkState& link = links_[id.index()];
    if (link.region != solve_) {
      link.region = solve_;
      link.region_flows = 0;
      link.region_weight = 0;
      link.region_bottlenecked = 0;
      link.outside = link.used;
      region_links_.push_back(id.value());
    }
    const double share = share_of(flow, hop);
    ++link.region_flows;
    link.region_weight += share;
    link.outside -= flow.rate * share;
  }
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
    if (link.bottlenecked > 0 || link.left <= kSlack * link.capacity) {
      for (const Member& member : link.flows) {
        include(member.flow);
      }
    }
  }
}

void FairShares::fill() {
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.level != b.level ? a.level > b.level : a.what > b.what;
  };
  candidates_.clear();
  for (const std::uint32_t number : region_links_) {
    LinkState& link = links_[number];
    // Exact where nobody else is on the link.
    link.left = link.region_flows == link.flows.size()
                    ? link.capacity
                    : std::clamp(link.capacity - link.outside, 0.0, link.capacity);
    link.unfixed = link.region_flows;
    link.weight = link.region_weight;
    link.binds = false;
    link.highest = 0;
    candidates_.push_back({link.left / link.weight, number});
  }
  for (const Flow number : region_flows_) {
    flows_[number].is_fixed = false;
    if (flows_[number].cap < kInfinite) {
      candidates_.push_back({flows_[number].cap, number | kIsFlow});
    }
  }
  std::make_heap(candidates_.begin(), candidates_.end(), later);
  double level = 0;
  std::size_t open = region_flows_.size();
  while (open > 0) {
    const Candidate candidate = candidates_.front();
    std::pop_heap(candidates_.begin(), candidates_.end(), later);
    candidates_.pop_back();
    if ((candidate.what & kIsFlow) != 0) {
      FlowState& flow = flows_[candidate.what & ~kIsFlow];
      if (!flow.is_fixed) {
        level = std::max(level, candidate.level);
        fix(flow, flow.cap, kNone);
        --open;
      }
      continue;
    }
    LinkState& link = links_[candidate.what];
    if (link.unfixed == 0) {
      continue;
    }
    // The share of those that are left only grows while others are fixed at lower levels.
    const double share = link.left / link.weight;
    if (share > candidate.level * (1 + kRounding)) {
      candidates_.push_back({share, candidate.what});
      std::push_heap(candidates_.begin(), candidates_.end(), later);
      continue;
    }
    if (share > level * (1 + kRounding)) {
      level = share;
    }
    link.binds = true;
    link.new_level = level;
    for (const Member& member : link.flows) {
      FlowState& flow = flows_[member.flow];
      if (flow.region == solve_ && !flow.is_fixed) {
        fix(flow, level, candidate.what);
        --open;
      }
    }
  }
}

void FairShares::fix(FlowState& flow, double level, std::uint32_t bottleneck) {
  flow.is_fixed = true;
  flow.new_rate = level;
  flow.new_bottleneck = bottleneck;
  for (std::size_t hop = 0; hop < flow.link_count; ++hop) {
    LinkState& link = links_[flow.links[hop].index()];
    const double share = share_of(flow, hop);
    link.left = std::max(0.0, link.left - level * share);
    link.highest = std::max(link.highest, level);
    link.weight -= share;
    --link.unfixed;
  }
}

// Whether flows outside the region lost their bottlenecks or spoil those of the region; they join.
bool FairShares::grow() {
  const std::size_t before = region_flows_.size();
  const std::size_t links = region_links_.size();
  for (std::size_t i = 0; i < links; ++i) {
    const std::uint32_t number = region_links_[i];
    const LinkState& link = links_[number];
    if (link.region_flows == link.flows.size()) {
      continue;
    }
    if (link.binds) {
      for (const Member& member : link.flows) {
        const FlowState& flow = flows_[member.flow];
        if (flow.rate > link.new_level * (1 + kSlack) ||
            (flow.bottleneck == number && flow.rate < link.new_level * (1 - kSlack))) {
          include(member.flow);
        }
      }
    } else if (link.left > kSlack * link.capacity || link.highest > link.level * (1 + kSlack)) {
      include_bottlenecked(number);
    }
  }
  return region_flows_.size() > before;
}

void FairShares::commit() {
  for (const Flow number : region_flows_) {
    FlowState& flow = flows_[number];
    if (flow.bottleneck != flow.new_bottleneck) {
      if (flow.bottleneck != kNone) {
        --links_[flow.bottleneck].bottlenecked;
      }
      if (flow.new_bottleneck != kNone) {
        ++links_[flow.new_bottleneck].bottlenecked;
      }
      flow.bottleneck = flow.new_bottleneck;
    }
    if (flow.is_new || std::fabs(flow.new_rate - flow.rate) > kRounding * flow.rate) {
      flow.is_new = false;
      flow.rate = flow.new_rate;
      changed_.push_back(number);
    }
  }
  for (const std::uint32_t number : region_links_) {
    LinkState& link = links_[number];
    link.used = link.capacity - link.left;
    if (link.binds) {
      link.level = link.new_level;
    }
    changed_use(link);
  }
}

}  // namespace rackrail::sim
