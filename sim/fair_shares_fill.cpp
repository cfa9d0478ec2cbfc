// Filling a region, and whether it is large enough.
#include <algorithm>
#include <cmath>

#include "sim/fair_shares.hpp"

namespace rackrail::sim {

namespace {
constexpr std::uint32_t kIsFlow = 1U << 31U;
}  // namespace

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
  each_link(flow, [&](LinkState& link, double share) {
    link.left = std::max(0.0, link.left - level * share);
    link.highest = std::max(link.highest, level);
    link.weight -= share;
    --link.unfixed;
  });
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
