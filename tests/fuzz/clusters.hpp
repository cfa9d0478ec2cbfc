// What holds of every cluster that a reader has taken.
#pragma once

#include <string>
#include <string_view>

#include "tests/fuzz/fuzz.hpp"
#include "topology/reader.hpp"

namespace rackrail::fuzz {

/// What is written of it reads back as the same. Clusters that are slow to write are left out.
inline void require_lasting(const topology::Topology& topology) {
  constexpr std::size_t kMostLinks = 5'000;
  if (topology.link_count() > kMostLinks || topology.node_count() > kMostLinks) {
    return;
  }
  const auto yaml = topology::read_cluster_text("flat.yaml", topology::to_flat_yaml(topology));
  require(yaml.topology.digest() == topology.digest(), "another cluster when written as YAML");
  // An edge list numbers vertices as they appear in it.
  const auto edges = [](const std::string& text) {
    return topology::read_cluster_text("edges.csv", text).topology;
  };
  const topology::Topology once = edges(topology::to_edge_list(topology));
  require(once.link_count() == topology.link_count() &&
              once.rank_count() == topology.rank_count() &&
              once.node_count() == topology.node_count(),
          "another cluster when written as an edge list");
  const std::string text = topology::to_edge_list(once);
  require(topology::to_edge_list(edges(text)) == text, "another edge list when written again");
}

/// Reads it as production does, and looks at what that gave.
inline void read_as(const std::string& format, std::string_view content) {
  topology::Topology cluster;
  const bool is_taken = accepted([&] {
    cluster =
        topology::read_cluster_text("cluster", std::string(content), {.format = format}).topology;
  });
  if (is_taken) {
    require_lasting(cluster);
  }
}

/// The same for files of the network between machines, which may lack rates: with those of one
/// tier, two, and three.
inline void read_network_as(const std::string& format, std::string_view content) {
  topology::ReadOptions options{.format = format};
  for (const char* tier : {"nic", "rack-uplink", "core"}) {
    options.tier_bandwidths.emplace(tier, Bandwidth(1'000'000'000));
    topology::Topology cluster;
    const bool is_taken = accepted([&] {
      cluster = topology::read_cluster_text("cluster", std::string(content), options).topology;
    });
    if (is_taken) {
      require_lasting(cluster);
    }
  }
}

}  // namespace rackrail::fuzz
