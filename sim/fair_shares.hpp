// Max–min fair rates of flows on links, kept up to date as flows come and go.
//
// Model. A flow is a fluid over all links of its route at once, at one rate. An allocation is
// max–min fair when no rate can rise without lowering one that is not larger. It is unique, and
// characterised by two conditions. No link carries more than its capacity. Every flow is either at
// its own cap or has a *bottleneck*, a saturated link on which no flow is faster (Bertsekas and
// Gallager, "Data Networks", 6.5.2). Progressive filling finds it: raise all rates together; the
// link (or cap) that saturates first fixes its flows; repeat with the rest.
//
// Change. A change travels only through bottlenecks: a flow is concerned when its bottleneck has
// room again, or is shared by a flow that is faster now (Ros-Giralt et al., "On the Bottleneck
// Structure of Congestion-Controlled Networks", SIGMETRICS 2020). So instead of the whole component
// of flows that share links, which in a busy network is everything, a region is solved:
//  1. The region is what is new, the flows whose bottleneck is a link that something left or that
//     something new uses, and all flows of links with a new capacity.
//  2. Fill the region progressively; all other rates stand, their share is taken off the links.
//  3. Look at the links of the region: does every flow outside still have its bottleneck, and is no
//     flow outside faster than the flows of the region that have theirs here? Flows for which this
//     fails join the region; then from 2. again.
// When nothing joins, every flow meets the characterisation above, so the allocation is the one
// that solving everything would give. Should this take more than kPatience rounds, the region grows
// to all that is connected to it through bottlenecks.
//
// Shares. A flow may take only a part of its rate from a link (its bytes go over several), or more
// (what they cost the cores of a host). Then r stands for the flow's rate. A link of capacity c
// whose flows have shares s saturates at r = c / Σ s. The characterisation above holds unchanged.
//
// Flows with all their links to themselves, and flows that leave links which were nobody's
// bottleneck, need none of this: O(links of the flow). That is the usual case of collectives on a
// fabric of full bisection. A region of f flows on l links costs O((f · route length + l) log l) a
// round, plus a look at all flows on its bottlenecks.
//
// Numbers. Levels and saturation are compared with a relative slack of 1e-9, always on absolute
// values, so errors do not add up over time. Rates that are equal by symmetry come out equal bit
// for bit, as a level that is within rounding of the one before is taken to be the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "sim/quad_heap.hpp"

namespace rackrail::sim {

class FairShares {
 public:
  using Flow = std::uint32_t;

  explicit FairShares(std::span<const double> capacities);
  /// `links`, not none, must outlive the flow. Its rate is known after solve().
  /// With `shares`, as many and living as long, a rate of r takes r · shares[i] of links[i], each
  /// above 0; without, r of each.
  void add(Flow flow, std::span<const LinkId> links, std::optional<double> cap,
           std::span<const double> shares = {});
  void remove(Flow flow);
  void set_capacity(LinkId link, double capacity);
  bool is_stale() const { return !added_.empty() || !freed_.empty() || !resized_.empty(); }
  /// Flows whose rates are new.
  std::span<const Flow> solve();
  double rate(Flow flow) const { return flows_[flow].rate; }
  /// What the flows of a link take of it, at the rates of the last solve().
  double used(LinkId link) const { return links_[link.index()].used; }
  bool is_idle(LinkId link) const { return links_[link.index()].flows.empty(); }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();
  static constexpr double kSlack = 1e-9;
  static constexpr double kRounding = 1e-12;
  struct alignas(64) FlowState {  // a cache line each
    const LinkId* links = nullptr;
    const double* shares = nullptr;  ///< none: 1 each
    double rate = 0;
    double cap = 0;
    double new_rate = 0;
    std::uint32_t region = 0;
    std::uint32_t bottleneck = kNone;
    std::uint32_t new_bottleneck = kNone;
    std::uint16_t link_count = 0;
    bool is_new = false;
  };
  struct Member {
    Flow flow;
    std::uint32_t hop;
  };
  struct LinkState {
    double capacity = 0;
    double used = 0;
    double level = 0;
    std::vector<Member> flows;
    std::uint32_t region = 0;
    std::uint32_t bottlenecked = 0;
    std::uint32_t region_flows = 0;
    std::uint32_t region_bottlenecked = 0;
    std::uint16_t age = 0;
    bool binds = false;
    bool is_freed = false;     ///< in freed_
    double region_weight = 0;  ///< sum of shares of the region's flows
    double outside = 0;
    double new_level = 0;
  };
  /// What filling changes of a link with every flow: apart from the rest, to stay near at hand.
  struct Filling {
    double left = 0;
    double weight = 0;  ///< sum of shares of the flows that are not fixed
    double highest = 0;
    std::uint32_t unfixed = 0;
  };
  __extension__ using Wide = unsigned __int128;
  /// A link, or the cap of a flow, and when it saturates.
  struct Candidate {
    std::uint64_t level = 0;  ///< bits of a double that is not negative: in the same order
    std::uint32_t what = 0;
    // One comparison of integers: most of the time goes into these, and branches are mispredicted.
    bool operator<(const Candidate& other) const {
      return (static_cast<Wide>(level) << 64U | what) <
             (static_cast<Wide>(other.level) << 64U | other.what);
    }
  };

  std::span<const LinkId> links_of(const FlowState& f) const { return {f.links, f.link_count}; }
  static double share_of(const FlowState& flow, std::size_t hop) {
    return flow.shares == nullptr ? 1 : flow.shares[hop];
  }
  /// `visit` with each link and the flow's share of it. Twice the loop, as nearly all flows have no
  /// shares and this is where the solver spends its time.
  template <typename Visit>
  static void each_link(const FlowState& flow, const Visit& visit) {
    if (flow.shares == nullptr) {
      for (std::size_t hop = 0; hop < flow.link_count; ++hop) {
        visit(flow.links[hop].value(), 1.0);
      }
      return;
    }
    for (std::size_t hop = 0; hop < flow.link_count; ++hop) {
      visit(flow.links[hop].value(), flow.shares[hop]);
    }
  }
  bool is_alone(const FlowState& flow) const;
  void solve_alone(Flow flow);
  void include(Flow flow);
  void include_bottlenecked(std::uint32_t link);
  void include_connected();
  void fill();
  void fix(Flow number, double level, std::uint32_t bottleneck);
  bool grow();
  void commit();
  void changed_use(LinkState& link) const;

  std::vector<FlowState> flows_;
  std::vector<LinkState> links_;
  std::vector<Filling> filling_;     ///< by link
  std::vector<std::uint32_t> open_;  ///< by flow: solve_ while it is of the region and not fixed
  std::vector<std::uint32_t> places_;
  std::size_t stride_ = 4;
  std::vector<Flow> added_;
  std::vector<std::uint32_t> freed_;
  std::vector<std::uint32_t> resized_;
  std::uint32_t solve_ = 0;
  std::vector<Flow> region_flows_;
  std::vector<std::uint32_t> region_links_;
  QuadHeap<Candidate> candidates_;
  std::vector<Flow> changed_;
};

}  // namespace rackrail::sim
