// Network adapters: by which of its devices a machine sends over a link, and receives.
//
// A machine is all vertices with its name, or a rank outside of any. What leads out of it, from a
// vertex of kind NIC or over a link of kind `host-link`, is an adapter's: a NIC's links all belong
// to one adapter, of other vertices each cable has its own (a host with two cables has two).
#pragma once

#include <string>
#include <vector>

#include "base/ids.hpp"
#include "topology/topology.hpp"

namespace rackrail::topology {

struct Adapter {
  std::string host;  ///< its machine
  std::string name;  ///< "nic<i>", counted from 0 in its machine by vertices and links
  /// What its machine may call it, separated by spaces (Link::adapter), and its vertex's name.
  std::string devices;
  std::vector<LinkId> out;  ///< links by which it sends
  std::vector<LinkId> in;   ///< and receives
  bool operator==(const Adapter&) const = default;
};

/// Of all machines, one machine's together and in the order of their numbers; none where no machine
/// has two. O(vertices + links log links).
std::vector<Adapter> adapters_of(const Topology& topology);

/// NICs with no link out of their machine, in the order of vertices, where other NICs have one: a
/// file that describes one machine alone has no cables. A NIC that nobody put into a host has its
/// cables to switches and other NICs. O(vertices + links).
std::vector<NodeId> nics_without_cable(const Topology& topology);

}  // namespace rackrail::topology
