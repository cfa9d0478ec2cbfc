// The packet level behind the simulator's door.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "sim/simulator.hpp"
#include "tests/support/free_devices.hpp"

namespace rackrail::sim::packet_level_test {
namespace {

using topology::NodeKind;
using topology::Topology;

Topology star(std::size_t n, Bandwidth rate, Duration latency, double cpu_share = 0) {
  Topology topology("star");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  for (std::size_t i = 0; i < n; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link(
        {.from = host, .to = hub, .bandwidth = rate, .latency = latency, .cpu_share = cpu_share});
  }
  return topology;
}

SimulationOptions packet_level() {
  SimulationOptions options;
  options.network = NetworkLevel::kPacket;
  options.device_rates = test::free_devices();
  return options;
}

TEST_CASE("a copy takes its bytes, one packet more for the switch, and the latencies") {
  const Topology topology = star(2, Bandwidth(1'000'000'000), 5_us);
  plan::TransferGraph graph("copy", plan::Collective::kAllReduce, 2, {1});
  const RouteId route = graph.add_route({});
  graph.add_transfer(
      {.src = Rank(0), .dst = Rank(1), .op = plan::TransferOp::kCopy, .route = route}, {});
  // 10 packets of 4096 B at 1 GB/s.
  const auto result = simulate_collective(graph, 10240, 10240, topology, packet_level());
  CHECK(result.time == Duration(11 * 4'096'000) + 10_us);
  REQUIRE(result.queues.size() == 1);
  CHECK(result.queues[0].marks == 0);
}

TEST_CASE("a symmetric ring is never folded, and takes 2 (n - 1) steps of a chunk and a packet") {
  constexpr std::size_t kRanks = 8;
  const Topology topology = star(kRanks, Bandwidth(1'000'000'000), 5_us);
  std::vector<Rank> order;
  for (std::size_t r = 0; r < kRanks; ++r) {
    order.emplace_back(r);
  }
  const auto ring = plan::make_ring_schedule(order);
  // Chunks of 16 packets; the additions take 65.536 ps each, rounded up to 66.
  constexpr std::int64_t kElements = kRanks * 16 * 1024;
  const auto result = simulate_collective(*ring, kElements, kElements, topology, packet_level());
  CHECK(result.copies == 1);
  CHECK(result.flows == kRanks * 2 * (kRanks - 1));
  const Duration step = Duration(17 * 4'096'000) + 10_us;
  CHECK(result.time == 14 * step + Duration(7 * 66));
}

TEST_CASE("messages take cores beside their packets") {
  constexpr std::int64_t kCore = 10'000'000'000;
  // At full rate a message takes so much of the core, and there is one each way.
  for (const double cpu_share : {0.25, 0.5, 1.0}) {
    CAPTURE(cpu_share);
    Topology topology = star(2, Bandwidth(1'000'000'000), 5_us, cpu_share);
    const NodeId a = topology.add_node({.name = "cores-in"});
    const NodeId b = topology.add_node({.name = "cores-out"});
    topology.set_processor(Rank(0), topology.add_link({.from = a,
                                                       .to = b,
                                                       .bandwidth = Bandwidth(kCore),
                                                       .kind = topology::LinkKind::kShared}));
    plan::TransferGraph graph("exchange", plan::Collective::kAllReduce, 2, {1, 1});
    for (std::uint32_t r = 0; r < 2; ++r) {
      graph.add_transfer(
          {.src = Rank(r), .dst = Rank(1 - r), .chunk_begin = r, .op = plan::TransferOp::kCopy},
          {});
    }
    const auto result = simulate_collective(graph, 20480, 20480, topology, packet_level());
    const double on_links = 11 * 4.096e-6 + 10e-6;
    const double on_core = 2 * 40'960 * cpu_share / 1e9;
    CHECK(result.time.seconds() == Approx(std::max(on_links, on_core)).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace rackrail::sim::packet_level_test
