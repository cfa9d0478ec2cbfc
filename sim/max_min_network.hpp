// The flow model: every flow gets its max–min fair rate on the links of its route.
//
// Model. A flow is a fluid over all links of its route at once. Rates are max–min fair: raise the
// rates of all flows together; the link (or rate cap) that saturates first fixes its flows; go on
// with the rest (progressive filling; Bertsekas and Gallager, "Data Networks", 6.5.2).
// Rates change only when flows start or end. Then only the flows that share links, directly or
// through others, with a changed flow are solved again: a connected component of the graph of flows
// and links. Everything that happens at one instant is one change.
//
// Remaining bytes are kept per flow with the time at which they were true, so an untouched
// component costs nothing. Ends are rounded up to a picosecond. Components are solved in O(flows ·
// route length · saturation rounds).
#pragma once

#include <queue>
#include <vector>

#include "sim/network_model.hpp"
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
    double cap = 0;        ///< bytes per picosecond, 0: none
    Time updated = 0;
    Time end = 0;
    std::uint64_t order = 0;  ///< of its start
    FlowTag tag = 0;
    std::span<const LinkId> links;
    std::vector<std::uint32_t> positions;  ///< in the flow list of each link
    std::uint32_t version = 0;             ///< of `end`; older entries of the queue are void
    std::uint32_t visit = 0;
    bool active = false;
    bool fixed = false;
  };
  struct LinkState {
    double capacity = 0;  ///< bytes per picosecond
    double left = 0;      ///< while solving
    std::uint32_t unfixed = 0;
    std::uint32_t visit = 0;
    std::vector<std::uint32_t> flows;
  };
  struct End {
    Time time;
    std::uint64_t order;
    std::uint32_t flow;
    std::uint32_t version;
  };
  struct Later {
    bool operator()(const End& x, const End& y) const {
      return x.time != y.time ? x.time > y.time : x.order > y.order;
    }
  };

  void remove(std::uint32_t index);
  void solve_changed(Time now);
  void gather_component(std::uint32_t link);
  void fill_component(Time now);
  void set_rate(Flow& flow, std::uint32_t index, double rate, Time now);

  std::vector<Flow> flows_;
  std::vector<std::uint32_t> free_;
  std::vector<LinkState> links_;
  std::vector<std::uint32_t> changed_links_;
  std::vector<std::uint32_t> lone_flows_;  ///< started on no link: only their cap counts
  std::priority_queue<End, std::vector<End>, Later> ends_;
  std::vector<std::uint32_t> component_flows_;
  std::vector<std::uint32_t> component_links_;
  std::uint32_t visit_ = 0;
  std::uint64_t started_ = 0;
};

}  // namespace rackrail::sim
