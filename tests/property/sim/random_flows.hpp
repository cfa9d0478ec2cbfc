// Random sets of flows on random links: the input of every test here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim::test {

struct RandomFlow {
  std::vector<LinkId> links;   ///< 1 to 8, all different
  std::vector<double> shares;  ///< of the rate, by link; none: all of it on each
  std::optional<double> cap;   ///< bytes/s
  std::int64_t start = 0;      ///< picoseconds
  std::int64_t bytes = 0;      ///< between 1 ms and 1 s at the rate of the flow alone
};

struct RandomFlows {
  std::vector<double> capacities;  ///< bytes/s, whole numbers from 1 MB/s to 1 TB/s
  std::vector<RandomFlow> flows;
  std::string kind;  ///< how they were drawn, for the message of a failure
};

/// 1 to `most_links` links and 1 to `most_flows` flows, drawn in one of several ways: equal, few or
/// widely spread capacities; routes anywhere, along a line, or through a few busy links; no, few
/// or many capped flows; half of the flows start at once, or all. Depends on the seed alone.
RandomFlows random_flows(std::uint64_t seed, std::size_t most_links = 60,
                         std::size_t most_flows = 200);

/// Half of the flows take other shares than all of their rate from their links, from a hundredth to
/// tenfold, or one k-th.
void draw_shares(RandomFlows& flows, std::uint64_t seed);

/// The links as a topology, each between two vertices of its own, with no latency.
topology::Topology as_topology(const RandomFlows& flows);

}  // namespace rackrail::sim::test
