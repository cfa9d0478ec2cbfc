// What an emulated network is to be made of, worked out from a topology: no privilege, no side
// effect.
//
// Every machine of the topology becomes a network namespace, every switch a namespace with a
// bridge, every cable a veth pair that is shaped at both ends. A machine has one data interface, or
// one for each of several networks that nothing but machines joins, as rails without a spine are.
// Bridges forward along a tree and do not route, so a fabric with parallel paths is brought down to
// one first:
//
//   1. All vertices of one machine are one station; so are all links between two stations, with the
//      sum of their rates. What is inside a machine (NVLink, PCIe) is not emulated.
//   2. Switches that lead nowhere go.
//   3. Switches of one network with the same neighbours become one, until there are none: the
//      spines of a leaf-spine network, the leaves of a rack with rails below spines. For traffic
//      that spreads evenly over parallel paths, as equal-cost routing wants it, that is the same
//      capacity; for single flows it is more, because they are no longer bound to one of the paths.
//
// What is no tree in each network then is refused. Latencies are not emulated: the delay of the
// bridges is what there is (tens of microseconds).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "topology/topology.hpp"

namespace rackrail::runtime::emulate {

inline constexpr std::size_t kMostHosts = 64;
/// Data networks.
inline constexpr std::size_t kMostRails = 16;
/// What a core forwards at most, with room for what the command computes: an emulated network whose
/// hosts may send more in all is refused. Whether less is held is measured (link_check.hpp).
inline constexpr Bandwidth kRatePerCore = Bandwidth(500'000'000);  // 4 Gbit/s
/// Slower links than this queue for seconds.
inline constexpr Bandwidth kSlowestLink = Bandwidth(125'000);  // 1 Mbit/s

/// A machine or a switch.
struct Station {
  std::string name;  ///< of the machine, or of the (first) switch, in the topology
  bool is_host = false;
  std::string address;  ///< in the (first) data network that it joins, without the prefix length
  std::string management_address;  ///< hosts only: in the network that nothing shapes
};

/// A cable. Interfaces are named inside the two stations' namespaces.
struct ShapedLink {
  std::size_t a = 0;  ///< index of a station
  std::size_t b = 0;
  std::string port_a;
  std::string port_b;
  std::string address_a;  ///< of the stations in the network that the link is of
  std::string address_b;
  Bandwidth rate_ab;  ///< on the wire, after scaling
  Bandwidth rate_ba;
  std::string tier;  ///< of the topology's link
};

struct NetworkPlan {
  std::string cluster;
  double scale = 1;
  std::vector<Station> stations;  ///< hosts first, in the order of their first rank
  std::size_t host_count = 0;
  std::vector<ShapedLink> links;          ///< a tree over the stations of each network
  std::vector<std::size_t> host_of_rank;  ///< index of a station
  /// By link of the topology, number of the data network that carries it; none inside machines.
  std::vector<std::optional<std::size_t>> rail_of_link;
  std::vector<std::string> notes;  ///< what is not as in the topology, one line each
  /// By host: which interfaces the topology's adapters are there, for RACKRAIL_ADAPTERS.
  std::vector<std::string> adapters;
};

/// Name of a host's interface in a data network: "rail0" in the first, which all hosts join.
std::string data_interface(std::size_t rail);
/// That in the first one, and the one for everything else than data.
inline constexpr const char* kDataInterface = "rail0";
inline constexpr const char* kManagementInterface = "mgmt0";
/// Prefix length of both networks, and the leader's address in the management network.
inline constexpr int kPrefixLength = 16;
inline constexpr const char* kLeaderAddress = "10.78.0.1";

/// `scale` multiplies all rates; `cores` is what this machine has. Throws ConfigError with found
/// and expected, for the caller to name the file: more than kMostHosts machines, cables of one
/// direction, loops of bridges, machines with two neighbours in one network, networks of which none
/// joins all machines, more than kMostRails of them, rates beyond the limits above.
NetworkPlan plan_network(const topology::Topology& topology, double scale, unsigned cores);

/// What the links of an emulated network cost, beside their rates.
struct EmulatedCosts {
  double payload_share = 1;  ///< of a rate, the rest being headers
  Duration latency;          ///< of a link
  Duration overhead;         ///< of a message (topology::Link::overhead)
  Bandwidth inside;          ///< between ranks of one machine, as loopback carries it
  /// Bytes of messages that this machine's cores move per second when they do nothing else, both
  /// ends counted; zero: they cost no core time.
  Bandwidth cores{};
};
/// The topology that the plan stands for, as the simulator is to see it: the same ranks, joined by
/// the plan's stations and links; a machine with several ranks is a switch around them, and its
/// interfaces are adapters (topology/adapters.hpp). Links let pass at once what HTB does
/// (burst_size). What
/// messages take of the cores is divided evenly between both ends (Link::cpu_share), and counts
/// for ranks that the caller gives a processor. What forwarding takes inside switches is left out.
topology::Topology emulated_topology(const topology::Topology& original, const NetworkPlan& plan,
                                     const EmulatedCosts& costs);

}  // namespace rackrail::runtime::emulate
