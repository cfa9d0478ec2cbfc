// Links that let a burst pass at once, as a token-bucket shaper does (HTB, policers).
//
// Model. A link of rate r and burst B has a bucket of at most B tokens, each a byte, full at first.
// It fills by what is not used of r and empties by what is used beyond it: dT/dt = r − used. While
// there are tokens the link is *open*: it carries kOpenRate more than r, so that others of a route
// bind (cores, caps, links without a burst); without tokens it carries r. So in a time t it carries
// r·t + B at most, and a flow of B over a link that was idle for B/r takes B/(r + kOpenRate), some
// nanoseconds. Nothing is refilled of a link that is used at its rate.
//
// Tokens change linearly between changes of rates, so they are only looked at there, and when the
// first bucket is empty. What is opened has tokens for a byte at least: a link is opened and closed
// once per byte at most, whatever rounding does. O(links with a burst) per event; none costs
// nothing.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "sim/fair_shares.hpp"
#include "sim/time.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

/// Bytes per picosecond that an open link carries beyond its rate.
inline constexpr double kOpenRate = 1;

class TokenBuckets {
 public:
  static constexpr Time kNever = std::numeric_limits<Time>::max();

  /// Of the links of `topology` that have a burst. All are open.
  explicit TokenBuckets(const topology::Topology& topology);

  bool empty() const { return buckets_.empty(); }
  std::span<const LinkId> links() const { return links_; }
  bool has(LinkId link) const { return !empty() && place_[link.index()] != kNone; }

  /// Tokens as they are at `now`, when `shares` has had its present rates since the last call.
  /// Before these change.
  void advance(Time now, const FairShares& shares);
  /// Gives links without tokens their own rates in `shares`; whether there were any in use.
  bool close_empty(FairShares& shares);
  /// Lets links with tokens carry more than their rates in `shares`.
  void open(FairShares& shares);
  /// The rate of a link that has a bucket, from now on; 0 keeps its tokens.
  void set_rate(LinkId link, double rate, FairShares& shares);
  /// When close_empty() has something to do if rates stay as they are.
  Time next_empty(Time now, const FairShares& shares) const;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Bucket {
    double size = 0;
    double rate = 0;  ///< bytes per picosecond
    double tokens = 0;
    bool is_open = true;
  };

  std::vector<LinkId> links_;
  std::vector<Bucket> buckets_;       ///< by place in links_
  std::vector<std::uint32_t> place_;  ///< by link of the topology, in links_
  Time now_ = 0;
};

}  // namespace rackrail::sim
