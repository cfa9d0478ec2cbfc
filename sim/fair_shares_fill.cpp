// Filling a region, and whether it is large enough.
#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/fair_shares.hpp"

#include "base/work.hpp"

namespace rackrail::sim {

namespace {
constexpr std::uint32_t kIsFlow = 1U << 31U;
}  // namespace

void FairShares::fill() {
  const auto candidate_at = [](double level, std::uint32_t what) {
    return Candidate{std::bit_cast<std::uint64_t>(level), what};
  };
  candidates_.clear();
  Work::add(region_flows_.size() + region_links_.size());
  for (const std::uint32_t number : region_links_) {
    LinkState& link = links_[number];
    Filling& filling = filling_[number];
    // Exact where nobody else is on the link.
    filling.left = link.region_flows == link.flows.size()
                       ? link.capacity
                       : std::clamp(link.capacity - link.outside, 0.0, link.capacity);
    filling.unfixed = link.region_flows;
    filling.weight = link.region_weight;
    filling.highest = 0;
    link.binds = false;
    candidates_.append(candidate_at(filling.left / filling.weight, number));
  }
  for (const Flow number : region_flows_) {
    open_[number] = solve_;
    if (flows_[number].cap < kInfinite) {
      candidates_.append(candidate_at(flows_[number].cap, number | kIsFlow));
    }
  }
  candidates_.order();
  double level = 0;
  std::size_t open = region_flows_.size();
  while (open > 0) {
    const Candidate candidate = candidates_.top();
    const double candidate_level = std::bit_cast<double>(candidate.level);
    if ((candidate.what & kIsFlow) != 0) {
      const Flow number = candidate.what & ~kIsFlow;
      candidates_.pop();
      if (open_[number] == solve_) {
        level = std::max(level, candidate_level);
        fix(number, flows_[number].cap, kNone);
        --open;
      }
      continue;
    }
    const Filling& filling = filling_[candidate.what];
    if (filling.unfixed == 0) {
      candidates_.pop();
      continue;
    }
    // The share of those that are left only grows while others are fixed at lower levels.
    const double share = filling.left / filling.weight;
    if (share > candidate_level * (1 + kRounding)) {
      candidates_.update(0, candidate_at(share, candidate.what));
      continue;
    }
    candidates_.pop();
    if (share > level * (1 + kRounding)) {
      level = share;
    }
    LinkState& link = links_[candidate.what];
    link.binds = true;
    link.new_level = level;
    for (const Member& member : link.flows) {
      if (open_[member.flow] == solve_) {
        fix(member.flow, level, candidate.what);
        --open;
      }
    }
  }
}

void FairShares::fix(Flow number, double level, std::uint32_t bottleneck) {
  open_[number] = 0;
  FlowState& flow = flows_[number];
  flow.new_rate = level;
  flow.new_bottleneck = bottleneck;
  each_link(flow, [&](std::uint32_t at, double share) {
    Filling& link = filling_[at];
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
    } else if (filling_[number].left > kSlack * link.capacity ||
               filling_[number].highest > link.level * (1 + kSlack)) {
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
    link.used = link.capacity - filling_[number].left;
    if (link.binds) {
      link.level = link.new_level;
    }
    changed_use(link);
  }
}

}  // namespace rackrail::sim
