// The overlay of files about the network between machines (docs/reference/cluster-file.md).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "topology/readers/cluster_spec.hpp"

namespace rackrail::topology {

/// Latency between two switches where nobody says one: a switch of InfiniBand with its cable.
inline constexpr Duration kUplinkLatency = 230_ns;

struct NetworkOverlay {
  std::optional<std::string> name;  ///< of the cluster
  std::optional<NodeType> host;     ///< what each host is
  /// By tier. A bandwidth of 0: none given. Without a given latency it is the assumed one.
  std::map<std::string, LinkClass> tiers;
};

/// Properties of a tier's links that nobody described: no bandwidth, the assumed latency.
LinkClass undescribed_tier(const std::string& tier);

/// Throws ConfigError. Without a path: nothing.
NetworkOverlay read_network_overlay(const std::optional<std::filesystem::path>& path);

}  // namespace rackrail::topology
