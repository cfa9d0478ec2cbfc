// The packet level on clusters whose ranks share processors: packets on links, fluids on
// processors.
//
// What a message takes of the processors at its ends (sim/routing.hpp), and all other work there,
// is no packet: it has a max–min fair share of the processor, as at the flow level. A message over
// both kinds of links is two flows at the same time, and has left, or is there, when both have or
// are: a busy processor makes messages end later, but does not slow their packets down.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sim/max_min_network.hpp"
#include "sim/network_model.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

class ProcessorsNetwork final : public NetworkModel {
 public:
  /// `links` models everything but the processors of the topology's ranks. Keeps a reference to the
  /// topology.
  ProcessorsNetwork(const topology::Topology& topology, std::unique_ptr<NetworkModel> links);

  void start(Time now, std::int64_t bytes, std::span<const LinkId> links, double rate_cap,
             FlowTag tag) override;
  void start_spread(Time now, std::int64_t bytes, const SpreadPath& path, FlowTag tag) override;
  void set_capacity(Time now, LinkId link, Bandwidth capacity) override;
  std::vector<HeldFlow> held_flows() const override;
  std::vector<FlowBound> flow_bounds(Time now) const override;
  Time next_event(Time now) override;
  void take_events(Time now, std::vector<FlowEvent>& events) override;
  void record_links(std::vector<LinkPiece>& pieces,
                    std::function<bool(FlowTag)> is_background) override {
    links_->record_links(pieces, std::move(is_background));
  }
  std::uint64_t flows_started() const override { return started_; }
  std::vector<QueueUse> queues() const override { return links_->queues(); }

 private:
  /// A path's links of one kind.
  struct Part {
    std::vector<LinkId> links;
    std::vector<double> shares;  ///< empty: all are 1
  };
  struct Parts {
    Part links;
    Part processors;
  };
  /// Parts of a flow that have yet to leave, and to be delivered.
  struct Open {
    std::uint8_t sending = 0;
    std::uint8_t under_way = 0;
  };

  const Parts& parts_of(const SpreadPath& path);
  void start_parts(Time now, std::int64_t bytes, const SpreadPath& path, double rate_cap,
                   FlowTag tag);

  std::unique_ptr<NetworkModel> links_;
  MaxMinNetwork processors_;
  std::vector<bool> is_processor_;  ///< by link
  std::map<std::pair<std::vector<LinkId>, std::vector<double>>, Parts> parts_;
  std::vector<Open> open_;         ///< by tag
  std::vector<FlowEvent> events_;  ///< of one model
  std::uint64_t started_ = 0;
};

}  // namespace rackrail::sim
