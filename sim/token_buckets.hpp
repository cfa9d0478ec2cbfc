// Links that let some bytes through at once: token buckets before the flow model.
//
// What shapes a link (HTB on emulated networks, policers of clouds) lets it carry more than its
// rate for a while when it carried less before. Its bucket holds `burst` bytes worth of tokens at
// most (Link::burst), is full at the beginning, gains them at the link's rate and loses one with
// each byte that passes.
//
// A message that comes to links with tokens goes ahead with as many of its bytes as all of them
// have tokens for, at the rate of the other links of its way (the cores that its bytes cost); the
// rest follows as a flow over all of them at their fair shares, as if there were no buckets. So on
// an idle link of rate r a message of B bytes takes max(0, B − burst) / r. Tokens that come while a
// message is under way, on a link that is not the one that holds it up, are for the next message.
// Cost: O(links of its way) more for each flow and each change of its rate. No bucket, no cost.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/max_min_network.hpp"
#include "sim/network_model.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

class TokenBuckets final : public NetworkModel {
 public:
  /// As MaxMinNetwork.
  explicit TokenBuckets(const topology::Topology& topology, double tolerance = 0);

  void start(Time now, std::int64_t bytes, std::span<const LinkId> links, double rate_cap,
             FlowTag tag) override;
  void start_spread(Time now, std::int64_t bytes, const SpreadPath& path, FlowTag tag) override;
  void set_capacity(Time now, LinkId link, Bandwidth capacity) override;
  std::vector<HeldFlow> held_flows() const override { return flows_.held_flows(); }
  std::vector<FlowBound> flow_bounds(Time now) const override { return flows_.flow_bounds(now); }
  Time next_event(Time now) override { return flows_.next_event(now); }
  void take_events(Time now, std::vector<FlowEvent>& events) override;
  std::uint64_t flows_started() const override { return started_; }
  void record_rates(std::vector<RatePiece>& pieces) override { flows_.record_rates(pieces); }
  void settle_rates(Time now) override { flows_.settle_rates(now); }

  /// Bytes that the link would let through at once. For tests.
  double tokens(Time now, LinkId link);

 private:
  struct Bucket {
    double burst = 0;  ///< bytes; 0: none
    double tokens = 0;
    double gain = 0;  ///< bytes per picosecond: the link's rate
    double used = 0;  ///< the same, of what it carries
    Time updated = 0;
  };
  /// The links of a way that have no bucket.
  struct Free {
    std::vector<LinkId> links;
    std::vector<double> shares;
  };
  /// What follows bytes that went ahead.
  struct Rest {
    std::int64_t bytes = 0;
    SpreadPath path;
    bool is_spread = false;
  };

  void settle(Bucket& bucket, Time now);
  std::int64_t take_tokens(Time now, std::int64_t bytes, const SpreadPath& path);
  const Free& free_of(const SpreadPath& path);
  void start_rest(Time now, FlowTag tag, const Rest& rest);
  void start_way(Time now, std::int64_t bytes, const SpreadPath& path, bool is_spread, FlowTag tag);

  std::vector<Bucket> buckets_;  ///< by link
  MaxMinNetwork flows_;
  std::map<std::pair<std::vector<LinkId>, std::vector<double>>, Free> free_;
  std::unordered_map<FlowTag, Rest> ahead_;  ///< of flows whose first bytes are under way
  std::vector<FlowEvent> events_;
  std::uint64_t started_ = 0;
};

/// Whether a link of it has a bucket.
bool has_token_buckets(const topology::Topology& topology);

}  // namespace rackrail::sim
