// What messages cost their senders and receivers, against closed forms, at both network levels.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/free_devices.hpp"

namespace rackrail::sim::message_overhead_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr Bandwidth kRate(1'000'000'000);
constexpr std::int64_t kFloats = 250;  // 1,000 bytes: 1 us at kRate
constexpr Duration kWire = 1_us;

// n hosts around a switch. The messages of the tests are shorter than a packet without headers, so
// that a message over both links takes the same at both levels but for the second transmission.
Topology hub_of(std::size_t n, Duration sending, Duration receiving, Bandwidth rate = kRate) {
  Topology topology("hub");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  for (std::size_t i = 0; i < n; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host,
                              .to = hub,
                              .bandwidth = rate,
                              .overhead = sending,
                              .receive_overhead = receiving});
  }
  return topology;
}

SimulationOptions level(NetworkLevel network) {
  SimulationOptions options;
  options.device_rates = test::free_devices();
  options.network = network;
  options.packets.header = Bytes(0);
  return options;
}

// A message that goes over two links one packet at a time is sent twice.
Duration again(NetworkLevel network) {
  return network == NetworkLevel::kPacket ? kWire : Duration();
}

plan::TransferGraph copies(std::size_t ranks, const std::vector<std::pair<int, int>>& pairs) {
  plan::TransferGraph graph("copies", plan::Collective::kAllReduce, ranks, {1});
  for (const auto& [src, dst] : pairs) {
    graph.add_transfer({.src = Rank(src), .dst = Rank(dst)}, {});
  }
  return graph;
}

TEST_CASE("overheads of messages to several ranks are paid at the same time") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  const int others = GENERATE(1, 2, 5);
  CAPTURE(network, others);
  std::vector<std::pair<int, int>> pairs;
  for (int i = 1; i <= others; ++i) pairs.emplace_back(0, i);
  const Topology topology = hub_of(6, 3_us, Duration());
  // All of them share the sender's link then.
  const auto result =
      simulate_collective(copies(6, pairs), kFloats, 1024, topology, level(network));
  CHECK(result.time == 3_us + others * kWire + again(network));
}

TEST_CASE("senders of one receiver pay at the same time, and the receiver one by one") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  const int others = GENERATE(1, 2, 5);
  CAPTURE(network, others);
  std::vector<std::pair<int, int>> pairs;
  for (int i = 1; i <= others; ++i) pairs.emplace_back(i, 0);
  const Topology topology = hub_of(6, 3_us, 7_us);
  const auto result =
      simulate_collective(copies(6, pairs), kFloats, 1024, topology, level(network));
  // As a fluid, all arrive together, when they have shared the receiver's link; as packets, one
  // every microsecond, and the first one's overhead begins at once.
  const Duration first =
      network == NetworkLevel::kFlow ? 3_us + others * kWire : 3_us + kWire + kWire;
  CHECK(result.time == first + others * 7_us);
}

TEST_CASE("slices follow each other through overhead, wire and overhead like a pipeline") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  const Duration receiving = GENERATE(Duration(), 2_us, 4_us, 9_us);
  constexpr int kSlices = 6;
  CAPTURE(network, receiving.picoseconds());
  const Topology topology = hub_of(2, 3_us, receiving);
  // Slices of 1,024 floats are the smallest: 4.096 us at 1 GB/s, in one packet.
  SimulationOptions options = level(network);
  options.packets.payload = Bytes(4096);
  const auto result =
      simulate_collective(copies(2, {{0, 1}}), kSlices * 1024, 1024, topology, options);
  const Duration wire(4'096'000);
  const Duration pace = std::max(3_us + wire, receiving);
  const Duration second = network == NetworkLevel::kPacket ? wire : Duration();
  CHECK(result.time == 3_us + wire + second + (kSlices - 1) * pace + receiving);
}

TEST_CASE("what a rank receives does not wait for what it sends") {
  Topology uneven("uneven");
  const NodeId hub = uneven.add_node({.name = "hub", .kind = NodeKind::kTor});
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = uneven.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    uneven.add_rank(host);
    topology::Link up{.from = host, .to = hub, .bandwidth = kRate};
    topology::Link down{.from = hub, .to = host, .bandwidth = kRate};
    up.overhead = i == 0 ? 2_us : 1_us;
    down.receive_overhead = i == 0 ? 5_us : Duration();
    uneven.add_link(up);
    uneven.add_link(down);
  }
  const auto result = simulate_collective(copies(4, {{0, 1}, {0, 2}, {0, 3}, {3, 0}}), kFloats,
                                          1024, uneven, level(NetworkLevel::kFlow));
  // Rank 3's message is there at 2 us; rank 0 has then paid for its own three.
  CHECK(result.time == 2_us + 5_us);
}

TEST_CASE("a multicast is one message of its root, a sum is one of each sender") {
  const bool is_multicast = GENERATE(true, false);
  CAPTURE(is_multicast);
  Topology topology = hub_of(4, 3_us, 2_us);
  topology = test::able(std::move(topology), {NodeKind::kTor});
  plan::TransferGraph graph("group", plan::Collective::kAllReduce, 4, {1});
  // Rule 7 of plan/transfer_graph.hpp: the routes say what the switch does.
  std::vector<RouteId> routes;
  for (std::uint32_t i = 1; i < 4; ++i) {
    const std::uint32_t from = is_multicast ? 0 : i;
    const std::uint32_t to = is_multicast ? i : 0;
    const RouteId route = graph.add_route({LinkId(2 * from), LinkId(2 * to + 1)});
    graph.add_transfer({.src = Rank(from),
                        .dst = Rank(to),
                        .op = is_multicast ? plan::TransferOp::kCopy : plan::TransferOp::kReduce,
                        .route = route},
                       {});
  }
  graph.add_group(TransferId(0), 3);
  const auto result =
      simulate_collective(graph, kFloats, 1024, topology, level(NetworkLevel::kFlow));
  // Either way all pay at the same time, once each; the addition of 1,000 bytes takes 1 ps.
  CHECK(result.time == 3_us + kWire + 2_us + (is_multicast ? Duration() : Duration(1)));
}

}  // namespace
}  // namespace rackrail::sim::message_overhead_test
