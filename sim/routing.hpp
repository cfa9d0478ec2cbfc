// The links that a simulation's messages use, and what else they cost. Only Multipath is for users
// outside sim/*.cpp.
//
// Routes. A plan pins a route to each of its transfers; two of one pair of ranks may have different
// ones, and are sent at the same time. A transfer without a route takes the one of least latency,
// as the planner expects. A network that chooses routes itself counts links
// (topology::Distance::kHops), as BGP and the subnet managers of InfiniBand do: it treats longer
// and shorter cables the same. With a flow hash (ECMP), a flow is all messages of a connection
// between two ranks, of which there is one, or several. Each connection has its own hash, and every
// message is divided evenly among them. Adapters with several queue pairs per connection do so, and
// sockets transports with several streams. Links carry the part of the connections that are on
// them, and the slowest connection holds the others back.
//
// Spraying. An ideal of sending packet by packet over all shortest routes. A message is one fluid
// of which every such route carries the same part (topology::Router::spread), so a link carries its
// share of the message's rate. Nothing is lost by reordering, and the slowest of the routes holds
// the others back. Where their latencies differ, the message has arrived when its last part has,
// over the longest. At the packet level switches distribute packets in these shares.
//
// Cores. A link's `cpu_share` is what sending or receiving at its full rate B takes of the host's
// cores. Where a rank at one end has a processor (capacity C), a message over such a link of its
// machine takes C · cpu_share / B of the processor per byte, on both ends. These are the cores that
// also compute and encode, shared max-min fair with that work. Ranks without a processor have no
// cores to charge.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/in_network.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

struct SimulationOptions;

/// Who says over which links a message goes.
enum class Multipath : std::uint8_t {
  kPinned,  ///< the plan; where it does not say, a route of least latency by a hash of the ranks
  kEcmp,    ///< the network, for all: for each connection one of the widest routes of fewest
            ///< links, by a hash of the two ranks, its number and the seed of the disturbances
  kSpray,   ///< the network, for all: all the widest routes of fewest links
};
/// What routes are chosen by, where the plan does not.
topology::Distance distance_of(Multipath multipath);

/// "pinned", "ecmp", "spray".
std::optional<Multipath> parse_multipath(std::string_view text);

struct RouteUse {
  std::vector<LinkId> links;  ///< each once, where there are shares
  /// By link, the share of the message's bytes; above 1 where paths of a tree share the link. None:
  /// all bytes on each link.
  std::vector<double> shares;
  Duration latency;           ///< of the longest path over these links
  Duration overhead;          ///< of a message at its sender: the largest of its links
  Duration receive_overhead;  ///< and at its receiver
  /// Bytes per second of a message, by Link::flow_bandwidth and the plan's rate; 0: no limit.
  double rate_cap = 0;
  /// Bytes per second that slices over the route leave at, one after the other, each as fast as
  /// links take it (plan/send_pace.hpp); 0: each as soon as the one before has left.
  double pace = 0;
  /// Where the message is staged in host memory, at its sender and at its receiver: the rate of
  /// the copy (topology::Node::host_staging); 0: it is not.
  Bandwidth copy_out;
  Bandwidth copy_in;
};

/// What of the bytes of a message links[i] carries.
inline double share_of(const RouteUse& use, std::size_t i) {
  return use.shares.empty() ? 1 : use.shares[i];
}

/// Bytes per second of a message that links[i] alone would let through.
double rate_alone(const topology::Topology& topology, const RouteUse& use, std::size_t i);

/// Has the route's messages go no faster than one may over this link, which carries this share of
/// their bytes, of several connections that of one.
void limit_rate(RouteUse& use, const topology::Link& link, double share);
/// The same by a rate of the plan's; 0: none.
void limit_rate(RouteUse& use, Bandwidth rate);
/// Holds what this rank sends over the route to a rate of the plan's, if there is one: where it has
/// a processor slices leave at that rate, as threads send them, else each moves no faster. (Hosts
/// without known cores have no processor, though the runtime sends there, too; some GPUs have one.)
void hold_to_rate(RouteUse& use, Rank src, const topology::Topology& topology, Bandwidth rate);

/// Tells the routes of a pair apart: a hash of the links. Two of them would take turns where it is
/// the same, once in 2³² pairs.
std::uint32_t route_number(const RouteUse& route);

/// Looks routes up; the topology must outlive it.
class Routing {
 public:
  /// `seed` is of kEcmp alone: what is left open elsewhere goes as the planner expects it. So are
  /// the `connections` between two ranks, of which the first has the route of a single one.
  Routing(const topology::Topology& topology, Multipath multipath, std::uint64_t seed = 0,
          int connections = 1);

  /// As a simulation with these options routes.
  Routing(const topology::Topology& topology, const SimulationOptions& options);

  /// `pinned` is the plan's route; none if it leaves that open. Throws ConfigError when there is no
  /// way from src to dst.
  RouteUse route(Rank src, Rank dst, std::span<const LinkId> pinned = {});
  /// Stages what goes from src to dst over a route, of several pairs the slowest copies.
  static void stage(const topology::Topology& topology, Rank src, Rank dst, RouteUse& use);
  const topology::Topology& topology() const { return topology_; }
  /// Whether a pinned route is taken: else the network chooses one for each pair.
  bool heeds_plan() const { return multipath_ == Multipath::kPinned; }
  /// Packets are copied and added where they meet, so operations of which they meet elsewhere are
  /// for flows only.
  plan::MeetingEdges meeting_edges() const { return meeting_edges_; }

 private:
  void add_ways(Rank src, Rank dst, RouteUse& use);
  void add_connections(Rank src, Rank dst, RouteUse& use);
  void charge_cores(Rank rank, bool sends, RouteUse& use) const;

  const topology::Topology& topology_;
  std::vector<topology::Router> routers_;  ///< by connection
  Multipath multipath_;
  plan::MeetingEdges meeting_edges_ = plan::MeetingEdges::kCarriedOut;
};

}  // namespace rackrail::sim
