// The flow model: every flow gets its max–min fair rate on the links of its route.
//
// A flow is a fluid over all links of its route at once (cut-through); the latency of the route
// follows its last byte. Rates change only when flows start or end; sim/fair_shares.hpp then solves
// what is concerned and says whose rate is new. Everything that happens at one instant is one
// change. Remaining bytes are kept per flow with the time at which they were true, so a flow whose
// rate stands costs nothing. Ends are rounded up to a picosecond.
//
// With a tolerance ε, where thousands of flows meet, rates are solved some hundred times for each
// generation of messages instead of at every start and end. When a flow that shares links ends,
// others end with it if they have only a share ε of their time left. And after flows have come or
// gone, the solver waits for further changes for ε of the mean time of such flows; a new flow
// stands still meanwhile. The two errors have opposite signs and are of ε per message at most.
//
// Links with a burst carry more than their bandwidth while it lasts (sim/token_buckets.hpp); the
// solver always knows who is on them.
//
// A flow that has all its links to itself, none with a burst, needs no solving: its rate is the
// narrowest link's, and it stays outside the solver until another flow comes to one of its links.
// On a fabric of full bisection that is nearly every flow of a ring or tree.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/delay_queue.hpp"
#include "sim/fair_shares.hpp"
#include "sim/network_model.hpp"
#include "sim/quad_heap.hpp"
#include "sim/token_buckets.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

class MaxMinNetwork final : public NetworkModel {
 public:
  /// `topology` must outlive it. `tolerance` in 0..1: see above.
  explicit MaxMinNetwork(const topology::Topology& topology, double tolerance = 0);

  void start(Time now, std::int64_t bytes, std::span<const LinkId> links, double rate_cap,
             FlowTag tag) override;
  void start_spread(Time now, std::int64_t bytes, const SpreadPath& path, FlowTag tag) override;
  void set_capacity(Time now, LinkId link, Bandwidth capacity) override;
  std::vector<HeldFlow> held_flows() const override;
  std::vector<FlowBound> flow_bounds(Time now) const override;
  Time next_event(Time now) override;
  void take_events(Time now, std::vector<FlowEvent>& events) override;
  std::uint64_t flows_started() const override { return started_; }
  void record_rates(std::vector<RatePiece>& pieces) override { pieces_ = &pieces; }
  void settle_rates(Time now) override;

  /// Rate in bytes/s of the moving flow with this tag; 0 when there is none. For tests.
  double rate_of(FlowTag tag) const;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::uint32_t kDelivery = 0;  ///< for Due::end_number
  static constexpr std::uint32_t kNobody = UINT32_MAX;
  static constexpr std::uint32_t kSolver = UINT32_MAX - 1;

  enum class State : std::uint8_t { kGone, kAlone, kShares };
  struct Flow {
    double remaining = 0;  ///< bytes, at `updated`
    double rate = 0;       ///< bytes per picosecond
    Time updated = 0;
    Time begun = 0;
    Time latency = 0;
    const LinkId* first_link = nullptr;
    FlowTag tag = 0;
    std::uint32_t order = 0;  ///< of its start
    /// kShares: its place in the heap of ends, or kNone. kAlone: the number of its end; a Due with
    /// another number is void.
    std::uint32_t end = kNone;
    std::uint16_t link_count = 0;
    State state = State::kGone;

    std::span<const LinkId> links() const { return {first_link, link_count}; }
  };
  static_assert(sizeof(Flow) == 64, "a million of them may wait at once");
  /// What few flows have.
  struct Extras {
    std::optional<double> cap;       ///< bytes per picosecond
    std::span<const double> shares;  ///< of a spread flow, of each link
  };
  struct LinkUse {
    double capacity = 0;  ///< bytes per picosecond
    Time latency = 0;
    std::uint32_t user = 0;  ///< the flow that has it alone, or one of the two values below
  };

  /// The end of a flow alone on its links, or a delivery.
  struct Due {
    FlowTag tag = 0;
    std::uint32_t flow = 0;
    std::uint32_t end_number = 0;
  };
  struct End {
    Time time = 0;
    std::uint32_t order = 0;
    std::uint32_t flow = 0;
    bool operator<(const End& o) const { return time != o.time ? time < o.time : order < o.order; }
  };
  struct RememberPlace {
    std::vector<Flow>* flows;
    void operator()(const End& end, std::size_t place) const {
      (*flows)[end.flow].end = static_cast<std::uint32_t>(place);
    }
  };

  std::uint32_t new_flow();
  void join(std::uint32_t number, Time now);
  bool is_void(const Due& due) const;
  bool waits_to_solve(Time now);
  LinkId slowest_link(const Flow& flow) const;
  Time time_left(const Flow& flow, Time now);
  void settle(Flow& flow, Time now);
  void set_alone(std::uint32_t number, Time now);
  void share(std::uint32_t number);
  void set_rate(std::uint32_t number, double rate, Time now);
  void finish(std::uint32_t number, Time now, std::vector<FlowEvent>& events);

  std::vector<RatePiece>* pieces_ = nullptr;  ///< null: they are not recorded
  static constexpr Time kNever = std::numeric_limits<Time>::max();

  const topology::Topology& topology_;
  double tolerance_;
  Time solve_at_ = kNever;  ///< when changes that wait are solved
  double mean_time_ = 0;    ///< of flows that shared links
  std::vector<LinkUse> links_;
  FairShares shares_;
  TokenBuckets buckets_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_;
  DelayQueue<Due> due_;
  QuadHeap<End, RememberPlace> ends_;
  std::uint64_t started_ = 0;
  std::uint32_t ends_made_ = 0;
  double last_remaining_ = -1;  ///< cached result of time_left(): most flows are equal
  double last_rate_ = 0;
  Time last_time_left_ = 0;
  std::unordered_map<std::uint32_t, Extras> extras_;
};

}  // namespace rackrail::sim
