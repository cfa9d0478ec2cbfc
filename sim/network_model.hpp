// How bytes share the network: the interface behind which the models are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "sim/time.hpp"

namespace rackrail::sim {

/// A number that the model hands back in the events of a flow.
using FlowTag = std::uint32_t;

/// Every flow has two events, in this order: the sender has sent the last byte, and the receiver
/// has it.
struct FlowEvent {
  FlowTag tag = 0;
  bool is_delivered = false;
  bool operator==(const FlowEvent&) const = default;
};

/// A flow with bytes that must still pass a link without capacity, or wait behind what must.
struct HeldFlow {
  FlowTag tag = 0;
  LinkId link;
  bool moves = false;  ///< so slowly that it would end after kLongestTime
};

/// How soon a flow can be delivered at best: when `link` has carried what of it still has to pass.
struct FlowBound {
  FlowTag tag = 0;
  LinkId link;       ///< the slowest of its way
  Bandwidth rate;    ///< of that link now
  double least = 0;  ///< picoseconds, while the link stays as it is
};

/// What a link's queue went through, of models that have queues.
struct QueueUse {
  LinkId link;
  Bytes longest;             ///< most that waited at the same time
  std::uint64_t marks = 0;   ///< packets marked for congestion
  std::uint64_t pauses = 0;  ///< times the link was paused by its far end
  std::uint64_t trims = 0;   ///< packets that lost their payload
};

/// What a flow moved while its rate stood.
struct RatePiece {
  FlowTag tag = 0;
  Time begin = 0;
  Time end = 0;
  double bytes = 0;
};

/// What a link sent without a break, of the plan's messages or of others'.
struct LinkPiece {
  LinkId link;
  Time begin = 0;
  Time end = 0;
  double bytes = 0;
  bool is_background = false;
};

/// Links with what a flow takes of each: at a rate of r, links[i] carries r · shares[i].
struct SpreadPath {
  std::span<const LinkId> links;  ///< each once
  std::span<const double> shares;
  Duration latency;
  double rate_cap = 0;  ///< bytes per second, as of NetworkModel::start
};

class NetworkModel {
 public:
  virtual ~NetworkModel() = default;
  NetworkModel() = default;
  NetworkModel(const NetworkModel&) = delete;
  NetworkModel& operator=(const NetworkModel&) = delete;

  /// Bytes that start to move now over `links` (which must outlive the flow). `rate_cap` in bytes
  /// per second limits this flow alone; 0 means no limit. A flow of no bytes ends at once.
  virtual void start(Time now, std::int64_t bytes, std::span<const LinkId> links, double rate_cap,
                     FlowTag tag) = 0;
  /// The same over what a single list of links cannot say: several routes at once, or
  /// a tree of switches that multicast or reduce. Throws ConfigError where the model cannot.
  virtual void start_spread(Time now, std::int64_t bytes, const SpreadPath& path, FlowTag tag) = 0;
  /// From now on the link carries this much; 0 holds what is on it until it carries something
  /// again.
  virtual void set_capacity(Time now, LinkId link, Bandwidth capacity) = 0;
  /// Flows that cannot end unless a link without capacity carries something again, in any order;
  /// twice where two links hold one. Models with rates add those that are all but held.
  virtual std::vector<HeldFlow> held_flows() const = 0;
  /// Of flows over one route or tree without a dead link, as far as the model knows.
  virtual std::vector<FlowBound> flow_bounds(Time now) const = 0;
  /// Time of the earliest event, or -1 when nothing moves. Flows that started or ended since the
  /// last call are taken into account together, as one change. Never less than `now`.
  virtual Time next_event(Time now) = 0;
  /// Appends the events at `now`, which next_event() gave.
  virtual void take_events(Time now, std::vector<FlowEvent>& events) = 0;
  virtual std::uint64_t flows_started() const = 0;
  /// Appends to `pieces` from now on, in the order of their ends; models without rates never do.
  virtual void record_rates(std::vector<RatePiece>& pieces) { (void)pieces; }
  /// Records what flows under way have moved up to now. Only when nothing else follows: what moves
  /// later may end a picosecond later for it.
  virtual void settle_rates(Time now) { (void)now; }
  /// Appends to `pieces` from now on what links send, exactly, in the order of their ends for each
  /// link; only models whose rates are not those of record_rates do. The predicate tells a flow
  /// that is under way.
  virtual void record_links(std::vector<LinkPiece>& pieces,
                            // NOLINTNEXTLINE(performance-unnecessary-value-param): models keep it
                            std::function<bool(FlowTag)> is_background) {
    (void)pieces;
    (void)is_background;
  }
  /// Of the links in use, by link; empty where the model has no queues.
  virtual std::vector<QueueUse> queues() const { return {}; }
};

}  // namespace rackrail::sim
