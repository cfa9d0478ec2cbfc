// Builds a cluster: machines in racks, and the switches that join them.
//
// Names. Ranks are gpu<host>.<i> or host<host>, so that an edge list tells them by name; the parts
// of a machine are pcie, cpu, nic <host>.<i> and nvswitch<host> (nvswitch<host>.<i> of islands; the
// first host's number where several share one); switches are tor<rack>, leaf<rack>.<rail>, spine<i>
// (spine<pod>.<i> in a fat tree) and core<i>. Where there are planes, those of tor and leaf have
// .<plane> behind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "topology/readers/cluster_spec.hpp"
#include "topology/topology.hpp"

namespace rackrail::topology {

/// Where a machine plugs into the network: one of its NICs, or the machine itself.
struct Port {
  NodeId node;
  LinkClass link;       ///< to its ToR or leaf
  std::string adapter;  ///< Link::adapter of that link
  std::size_t nic = 0;  ///< its number; ports of one NIC follow each other
};

/// A machine to be built.
struct HostPlace {
  int number = 0;    ///< in the cluster, from 0
  std::string host;  ///< "host<number>"
  std::string rack;  ///< "rack<number>"
  std::string type;  ///< of the rack group; may be empty
  int in_rack = 0;   ///< number among the rack's hosts, from 0
};

/// Adds the vertices, links and ranks of one machine; returns its ports, by NIC number.
using HostFactory = std::function<std::vector<Port>(Topology&, const HostPlace&)>;

/// Adds all machines, rack by rack, and the network between them. Machines without ports must be
/// alone. Throws ConfigError.
void build_cluster(Topology& topology, const std::vector<RackGroup>& racks, const Network& network,
                   const HostFactory& add_host);

/// Throws ConfigError for more vertices and links, together, than any cluster has that fits into a
/// few gigabytes.
void require_buildable(std::int64_t parts);

/// Adds one machine of the type, as build_cluster wants it.
std::vector<Port> add_host_of_type(Topology& topology, const HostPlace& place,
                                   const NodeType& type);

}  // namespace rackrail::topology
