// Greedy matching in the simulator, against the bound of the topology.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

#include "planner/schedule_family.hpp"
#include "sim/simulator.hpp"
#include "tests/support/free_devices.hpp"
#include "tests/support/grids.hpp"
#include "topology/queries.hpp"

namespace rackrail::greedy_matching_test {
namespace {

using topology::NodeKind;
using topology::Topology;

// Only the network takes time.
sim::SimulationOptions network_only() {
  sim::SimulationOptions options;
  options.device_rates = test::free_devices();
  return options;
}

Topology star(const std::vector<Bandwidth>& rates) {
  Topology topology("star");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  for (const Bandwidth rate : rates) {
    const std::string name = fmt::format("host{}", topology.rank_count());
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = hub, .bandwidth = rate, .latency = 1_us});
  }
  return topology;
}

/// Boxes of GPUs on a switch of their own; each GPU has a slower link to a common switch.
Topology boxes(int count, int gpus) {
  Topology topology("boxes");
  const NodeId spine = topology.add_node({.name = "spine", .kind = NodeKind::kSpine});
  for (int b = 0; b < count; ++b) {
    const std::string host = fmt::format("box{}", b);
    const NodeId inside =
        topology.add_node({.name = host + "-nvswitch", .kind = NodeKind::kNvSwitch, .host = host});
    for (int g = 0; g < gpus; ++g) {
      const NodeId gpu = topology.add_node(
          {.name = fmt::format("{}-gpu{}", host, g), .kind = NodeKind::kGpu, .host = host});
      topology.add_rank(gpu);
      topology.add_duplex_link(
          {.from = gpu, .to = inside, .bandwidth = 300_GBps, .latency = 500_ns});
      topology.add_duplex_link({.from = gpu, .to = spine, .bandwidth = 25_GBps, .latency = 3_us});
    }
  }
  return topology;
}

Topology torus() {
  constexpr std::uint32_t kSeed = 6;
  std::mt19937 random(kSeed);
  return test::grid({{4, true}, {4, true}}, random);
}

/// Time over what reduce-scatter and all-gather at their bounds take one after the other.
double over_bound(const Topology& topology) {
  topology::Router router(topology);
  const auto graph = planner::schedule_family("greedy-matching").all_reduce({topology, router, {}});
  constexpr std::int64_t kElements = 1 << 28;
  const Duration time =
      sim::simulate_collective(graph, kElements, 1 << 20, topology, network_only()).time;
  const auto seconds = [&](const topology::AllGatherBound& bound) {
    return 4.0 * kElements / static_cast<double>(bound.algbw.bytes_per_second());
  };
  return time.seconds() / (seconds(topology::allgather_bound(topology)) +
                           seconds(topology::reducescatter_bound(topology)));
}

TEST_CASE("greedy matching comes near the bound of reduce-scatter and all-gather") {
  const Topology even = star(std::vector<Bandwidth>(8, 10_GBps));
  CHECK(over_bound(even) < 1.001);
  CHECK(over_bound(torus()) < 1.001);
  CHECK(over_bound(boxes(2, 8)) < 1.02);
  CHECK(over_bound(boxes(4, 4)) < 1.04);
  std::vector<Bandwidth> rates(7, 100_GBps);
  rates.push_back(25_GBps);
  CHECK(over_bound(star(rates)) < 1.1);
}

}  // namespace
}  // namespace rackrail::greedy_matching_test
