// How bytes share the network: the interface behind which the models are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "sim/event_queue.hpp"

namespace rackrail::sim {

/// A number that the model hands back when the flow ends.
using FlowTag = std::uint64_t;

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
  /// Earliest time at which a flow ends, or -1 when none moves. Flows that were started or ended
  /// since the last call are taken into account together, as one change.
  virtual Time next_end(Time now) = 0;
  /// Tags of the flows that end at `now`, in the order in which they were started.
  virtual std::vector<FlowTag> take_ended(Time now) = 0;
  virtual std::uint64_t flows_started() const = 0;
};

}  // namespace rackrail::sim
