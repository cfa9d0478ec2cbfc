// The flow model: every flow gets its max–min fair rate on the links of its route.
//
// A flow is a fluid over all links of its route at once. Rates change only when flows start or end;
// sim/fair_shares.hpp then solves what is concerned and says whose rate is new. Everything that
// happens at one instant is one change. Remaining bytes are kept per flow with the time at which
// they were true, so a flow whose rate stands costs nothing. Ends are rounded up to a picosecond.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/fair_shares.hpp"
#include "sim/network_model.hpp"
#include "sim/quad_heap.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

class MaxMinNetwork final : public NetworkModel {
 public:
  explicit MaxMinNetwork(const topology::Topology& topology);

  void start(Time now, std::int64_t bytes, std::span<const LinkId> links, double rate_cap,
             FlowTag tag) override;
  Time next_end(Time now) override;
  std::vector<FlowTag> take_ended(Time now) override;
  std::uint64_t flows_started() const override { return started_; }

  /// Rate in bytes/s of the moving flow with this tag; 0 when there is none. For tests.
  double rate_of(FlowTag tag) const;

 private:
  struct Flow {
    double remaining = 0;  ///< bytes, at `updated`
    double rate = 0;       ///< bytes per picosecond
    Time updated = 0;
    std::uint64_t order = 0;  ///< of its start
    FlowTag tag = 0;
    std::size_t place = SIZE_MAX;  ///< in the heap of ends
    bool moves = false;
    bool shares = false;  ///< it uses links, so the solver knows it
  };
  struct End {
    Time time = 0;
    std::uint64_t order = 0;
    std::uint32_t flow = 0;
    bool operator<(const End& o) const { return time != o.time ? time < o.time : order < o.order; }
  };
  struct RememberPlace {
    std::vector<Flow>* flows;
    void operator()(const End& end, std::size_t place) const { (*flows)[end.flow].place = place; }
  };

  void set_rate(std::uint32_t number, double rate, Time now);
  void set_end(std::uint32_t number, Time end);

  FairShares shares_;
  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_;
  QuadHeap<End, RememberPlace> ends_;
  std::uint64_t started_ = 0;
};

}  // namespace rackrail::sim
