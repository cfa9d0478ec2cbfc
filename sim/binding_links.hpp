// Which link of its route a message waited for: the one that, while the message was on the wire,
// carried the largest share of what it can carry.
//
// Not simply the narrowest: a wide uplink that many messages share binds them, not their hosts'
// cables. Each message's bytes count as spread evenly over its time on the wire, and other traffic
// as spread over the step.
#pragma once

#include <optional>
#include <span>
#include <unordered_map>

#include "base/ids.hpp"
#include "sim/disturbances.hpp"
#include "sim/engine.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

class BindingLinks {
 public:
  /// Of the messages among these activities of the engine, whose times do not overlap, in a step
  /// that lasts at least `from` to `to`, above 0. Cost: one
  /// look at each message that was simulated, and at those of the given activities during which it
  /// was on the wire.
  BindingLinks(const Engine& engine, const topology::Topology& topology,
               const Disturbances& disturbances, std::span<const Activity* const> activities,
               Time from, Time to);

  /// None for what is no message, and for one that passes no link.
  std::optional<LinkId> of(const Activity* activity) const;

 private:
  std::unordered_map<const Activity*, LinkId> links_;
};

}  // namespace rackrail::sim
