#include "bench/sim/fabric.hpp"

#include <fmt/format.h>

namespace rackrail::bench {

Fabric::Fabric(std::size_t hosts, Duration spine_latency) {
  using topology::NodeKind;
  const auto join = [this](NodeId a, NodeId b, Duration latency) {
    return topology.add_duplex_link(
        {.from = a, .to = b, .bandwidth = 100_Gbps, .latency = latency});
  };
  const auto back = [](LinkId link) { return LinkId(link.value() + 1); };
  std::vector<NodeId> spines;
  for (std::size_t s = 0; s < kHostsPerLeaf; ++s) {
    spines.push_back(
        topology.add_node({.name = fmt::format("spine{}", s), .kind = NodeKind::kSpine}));
  }
  NodeId leaf;
  for (std::size_t h = 0; h < hosts; ++h) {
    if (h % kHostsPerLeaf == 0) {
      leaf = topology.add_node(
          {.name = fmt::format("leaf{}", leaf_up.size()), .kind = NodeKind::kTor});
      auto& ups = leaf_up.emplace_back();
      auto& downs = leaf_down.emplace_back();
      for (const NodeId spine : spines) {
        ups.push_back(join(leaf, spine, spine_latency));
        downs.push_back(back(ups.back()));
      }
    }
    const std::string name = fmt::format("host{}", h);
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    up.push_back(join(host, leaf, 1_us));
    down.push_back(back(up.back()));
  }
}

std::vector<LinkId> Fabric::route(std::size_t from, std::size_t to, std::size_t salt) const {
  const std::size_t a = from / kHostsPerLeaf;
  const std::size_t b = to / kHostsPerLeaf;
  if (a == b) {
    return {up[from], down[to]};
  }
  const std::size_t spine = (from + salt) % kHostsPerLeaf;
  return {up[from], leaf_up[a][spine], leaf_down[b][spine], down[to]};
}

topology::Topology rail_fabric(std::size_t hosts) {
  using topology::NodeKind;
  constexpr std::size_t kGpus = 8;
  constexpr std::size_t kSpines = 32;
  constexpr std::size_t kHosts = 32;  // per leaf
  topology::Topology topology("rails");
  std::vector<std::vector<NodeId>> spines(kGpus);
  for (std::size_t rail = 0; rail < kGpus; ++rail) {
    for (std::size_t s = 0; s < kSpines; ++s) {
      spines[rail].push_back(topology.add_node(
          {.name = fmt::format("spine{}-{}", rail, s), .kind = NodeKind::kSpine}));
    }
  }
  std::vector<NodeId> leaves(kGpus);
  for (std::size_t h = 0; h < hosts; ++h) {
    for (std::size_t rail = 0; h % kHosts == 0 && rail < kGpus; ++rail) {
      leaves[rail] = topology.add_node(
          {.name = fmt::format("leaf{}-{}", h / kHosts, rail), .kind = NodeKind::kTor});
      for (const NodeId spine : spines[rail]) {
        topology.add_duplex_link(
            {.from = leaves[rail], .to = spine, .bandwidth = 400_Gbps, .latency = 1_us});
      }
    }
    const std::string host = fmt::format("host{}", h);
    const NodeId inside =
        topology.add_node({.name = host + "-nvswitch", .kind = NodeKind::kNvSwitch, .host = host});
    for (std::size_t g = 0; g < kGpus; ++g) {
      const NodeId gpu = topology.add_node({.name = fmt::format("{}-gpu{}", host, g),
                                            .kind = NodeKind::kGpu,
                                            .host = host,
                                            .device_class = "h100"});
      topology.add_rank(gpu);
      topology.add_duplex_link(
          {.from = gpu, .to = inside, .bandwidth = 450_GBps, .latency = Duration(500'000)});
      topology.add_duplex_link(
          {.from = gpu, .to = leaves[g], .bandwidth = 400_Gbps, .latency = 2_us});
    }
  }
  return topology;
}

}  // namespace rackrail::bench
