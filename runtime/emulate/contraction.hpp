// A topology brought down to machines and switches, as network_plan.hpp describes it.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "topology/topology.hpp"

namespace rackrail::runtime::emulate {

struct Contraction {
  struct Vertex {
    std::string name;
    bool is_host = false;
    std::size_t ranks = 0;
    bool is_gone = false;  ///< led nowhere, or is part of another one now
    /// Of switches: which of the networks that only machines join, from 0. Also of those that are
    /// part of another one.
    std::optional<std::size_t> network;
  };
  struct Edge {
    Bandwidth rate;  ///< sum over all parallel links
    std::string tier;
  };
  std::vector<Vertex> vertices;
  std::map<std::pair<std::size_t, std::size_t>, Edge> edges;  ///< by (from, to)
  std::vector<std::size_t> vertex_of_rank;
  std::vector<std::size_t> vertex_of_node;  ///< of the topology, by number
  std::vector<std::string> notes;

  std::set<std::size_t> neighbours(std::size_t vertex) const;
};

/// Machines, switches and the sums of their links, with the switches that lead nowhere left out and
/// those of a network with the same neighbours merged. Throws ConfigError for links of one
/// direction.
Contraction contract(const topology::Topology& topology);

}  // namespace rackrail::runtime::emulate
