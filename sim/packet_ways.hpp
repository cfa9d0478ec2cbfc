// Over which links the packets of a flow go, where that may be more than one list of links; for
// sim/packet_*.cpp only.
//
// The links of a flow form a graph without circles; after a link come those that begin where it
// ends. Where several come after one, a packet takes one of them, in turn and as often as their
// shares say (spraying, by every switch on the way), or a copy of it goes over each (multicast).
// Where several end in one vertex and none of them is an alternative, their packets become one
// there (reduction). Shares tell the two apart: each link of a tree carries all of the bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "sim/network_model.hpp"
#include "sim/time.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

/// A link of a PacketWays by its place in there.
using Hop = std::uint16_t;

class PacketWays {
 public:
  enum class Kind : std::uint8_t { kRoute, kInTurn, kCopies, kSums };

  /// One link after the other; not empty.
  PacketWays(const topology::Topology& topology, std::span<const LinkId> route);
  /// Throws ConfigError when switches would both copy and add, or links go in a circle.
  PacketWays(const topology::Topology& topology, const SpreadPath& path);

  Kind kind() const { return kind_; }
  LinkId link(Hop hop) const { return hops_[hop].link; }
  std::span<const LinkId> links() const { return links_; }
  /// Where senders begin, and what each of these links carries of the bytes.
  const std::vector<Hop>& first() const { return first_; }
  double share(Hop hop) const { return hops_[hop].share; }
  /// Empty where a receiver is.
  std::span<const Hop> after(Hop hop) const { return hops_[hop].after; }
  /// The next of after(hop), in turn.
  Hop take_turn(Hop hop);
  /// All that end where this one does and become one with it, itself too.
  std::span<const Hop> joined_with(Hop hop) const { return hops_[hop].joined; }
  /// Links at whose end receivers are; where packets become one there, those count once.
  std::size_t receivers() const { return receivers_; }
  /// From the beginning of `hop` to the farthest receiver.
  Time latency_from(Hop hop) const { return hops_[hop].latency; }
  /// A way from `hop` to a receiver.
  std::vector<LinkId> one_from(Hop hop) const;

 private:
  struct Place {
    LinkId link;
    double share = 1;
    std::vector<Hop> after;
    std::vector<Hop> joined;
    double owed = 0;  ///< of take_turn(): packets that it should have had and has not
    Time latency = 0;
  };

  void connect(const topology::Topology& topology);
  void find_kind(const topology::Topology& topology);
  void add_latencies(const topology::Topology& topology);

  Kind kind_ = Kind::kRoute;
  std::vector<Place> hops_;
  std::vector<LinkId> links_;
  std::vector<Hop> first_;
  std::size_t receivers_ = 1;
};

}  // namespace rackrail::sim
