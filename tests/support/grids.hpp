// Grids and tori of directly linked ranks.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::test {

struct Side {
  std::uint32_t size;
  bool is_ring;
  Bandwidth rate = 10_GBps;
};

/// A grid whose ranks are numbered at random: coordinates must come from the links alone.
inline topology::Topology grid(const std::vector<Side>& sides, std::mt19937& random) {
  topology::Topology topology("grid");
  std::uint32_t places = 1;
  for (const Side& side : sides) {
    places *= side.size;
  }
  std::vector<std::uint32_t> rank_of(places);
  std::iota(rank_of.begin(), rank_of.end(), 0U);
  std::shuffle(rank_of.begin(), rank_of.end(), random);
  std::vector<NodeId> nodes;
  for (std::uint32_t r = 0; r < places; ++r) {
    nodes.push_back(
        topology.add_node({.name = fmt::format("gpu{}", r), .kind = topology::NodeKind::kGpu}));
    topology.add_rank(nodes.back());
  }
  std::uint32_t stride = 1;
  for (const Side& side : sides) {
    for (std::uint32_t place = 0; place < places; ++place) {
      const std::uint32_t at = place / stride % side.size;
      if (at + 1 < side.size || (side.is_ring && side.size > 2)) {
        const std::uint32_t next = place + ((at + 1) % side.size) * stride - at * stride;
        topology.add_duplex_link({.from = nodes[rank_of[place]],
                                  .to = nodes[rank_of[next]],
                                  .bandwidth = side.rate,
                                  .latency = 1_us});
      }
    }
    stride *= side.size;
  }
  return topology;
}

}  // namespace rackrail::test
