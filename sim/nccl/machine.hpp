// A cluster as NCCL sees it: hosts with GPU ports and rails, without the switches between.
//
// NCCL drives all rails of a host at once with equal shares of the data (a channel or more per
// NIC), so the slowest rail sets the pace of its host: a degraded NIC costs all of them. The view
// therefore has one port per GPU and one egress and ingress per host, which is what the simulator
// then runs; it is small even for thousands of GPUs. Links between switches are shared by the flows
// of several hosts; what each pair of hosts gets of them follows from the routes of all pairs that
// talk (View).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/nccl/parameters.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim::nccl {

struct Host {
  std::vector<Rank> ranks;       ///< of the cluster
  std::vector<double> port_Bps;  ///< of each rank: out of and into the GPU, to the others
  HopKind hop = HopKind::kNvlink;
  bool has_sharp = false;  ///< its NVSwitch multicasts and reduces
};

/// Hosts of a cluster that take part, with as many of their GPUs as take part. Keeps a reference:
/// the topology must outlive it.
class Machine {
 public:
  /// The first `nodes` hosts with the first `gpus_per_node` ranks of each. Throws ConfigError when
  /// the cluster has not so many.
  Machine(const topology::Topology& cluster, std::size_t nodes, std::size_t gpus_per_node);
  /// The hosts with these numbers (in the order of their first rank), for other placements.
  Machine(const topology::Topology& cluster, std::span<const std::size_t> hosts,
          std::size_t gpus_per_node);

  const std::vector<Host>& hosts() const { return hosts_; }
  std::size_t rank_count() const { return hosts_.size() * gpus_per_node_; }
  std::size_t gpus_per_node() const { return gpus_per_node_; }
  const topology::Topology& cluster() const { return *cluster_; }
  bool has_sharp() const;
  /// Slowest GPU port.
  double port_Bps() const;
  /// All rails of a host pair at the pace of the slowest, host side only: NIC and PCIe.
  double nic_Bps(std::size_t host) const { return nic_Bps_.at(host); }
  double slowest_nic_Bps() const;

 private:
  void settle(std::span<const std::size_t> hosts);

  const topology::Topology* cluster_;
  std::size_t gpus_per_node_;
  std::vector<Host> hosts_;
  std::vector<double> nic_Bps_;
};

using HostPair = std::pair<std::uint32_t, std::uint32_t>;

/// What each directed pair of hosts that talks gets of the links between switches, in bytes/s, for
/// all of its rails at the pace of the slowest, when all pairs talk at once.
std::vector<double> fabric_rates(const Machine& machine, std::span<const HostPair> pairs);

}  // namespace rackrail::sim::nccl
