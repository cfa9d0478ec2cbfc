// Devices whose messages are staged in host memory: times against closed forms of a pipeline of
// copy, wire and copy.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/verifier.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim::host_staging_test {
namespace {

using plan::TransferGraph;
using plan::TransferOp;
using topology::Topology;

constexpr std::int64_t kWire = 1'000'000'000;    // B/s
constexpr std::int64_t kEncode = 2'000'000'000;  // B/s of FP32
constexpr std::int64_t kDecode = 8'000'000'000;  // the same
constexpr Duration kLatency = 3_us;              // of a link; a route has two
const Duration kRoute = kLatency + kLatency;
constexpr Duration kLaunch = 7_us;

Duration at(std::int64_t bytes, std::int64_t rate) { return Bytes(bytes) / Bandwidth(rate); }
Duration copy(std::int64_t bytes, std::int64_t rate) { return kLaunch + at(bytes, rate); }

SimulationOptions device_options() {
  plan::DeviceRates rates;
  rates.codecs.fill({Bandwidth(kEncode), Bandwidth(kDecode)});
  rates.reduce = Bandwidth(INT64_MAX);
  rates.launch = kLaunch;
  SimulationOptions options;
  options.device_rates = rates;
  return options;
}

plan::Transfer message(std::uint32_t src, std::uint32_t dst, std::uint8_t codec = 0) {
  return {.src = Rank(src), .dst = Rank(dst), .op = TransferOp::kCopy, .codec = codec};
}

Duration time_of(const TransferGraph& graph, const Topology& topology, std::int64_t elements,
                 std::int64_t slice, NetworkLevel level = NetworkLevel::kFlow) {
  SimulationOptions options = device_options();
  options.network = level;
  return simulate_collective(graph, elements, slice, topology, options).time;
}

TEST_CASE("a staged message is a pipeline of copy, wire and copy: the slowest sets its pace") {
  const std::int64_t staging = GENERATE(as<std::int64_t>{}, 500'000'000, 4'000'000'000);
  const std::int64_t slices = GENERATE(as<std::int64_t>{}, 1, 7, 40);
  constexpr std::int64_t kSlice = 25'000;  // elements
  TransferGraph graph("one", plan::Collective::kAllGather, 2, {1});
  graph.add_transfer(message(0, 1), {});
  const Duration one_copy = copy(4 * kSlice, staging);
  const Duration wire = at(4 * kSlice, kWire);
  CAPTURE(staging, slices);
  CHECK(time_of(graph, test::staged_gpus({"a", "b"}, staging), slices * kSlice, kSlice) ==
        one_copy + wire + kRoute + one_copy + (slices - 1) * std::max(one_copy, wire));
  // Not inside a host, nor where NICs read the memory of GPUs.
  const Duration direct = slices * wire + kRoute;
  CHECK(time_of(graph, test::staged_gpus({"a", "a"}, staging), slices * kSlice, kSlice) == direct);
  CHECK(time_of(graph, test::staged_gpus({"a", "b"}, 0), slices * kSlice, kSlice) == direct);
  // A vertex without a host is one by itself.
  CHECK(time_of(graph, test::staged_gpus({"", ""}, staging), slices * kSlice, kSlice) > direct);
}

TEST_CASE("what is encoded is copied as it goes over the wire") {
  constexpr std::int64_t kElements = 100'000;
  constexpr std::int64_t kStaging = 500'000'000;
  TransferGraph graph("one", plan::Collective::kAllGather, 2, {1});
  graph.add_transfer(message(0, 1, graph.add_codec({.kind = plan::CodecKind::kFp16})), {});
  // The sender goes on with what the other will decode.
  const Duration encode = copy(4 * kElements, kEncode) + copy(4 * kElements, kDecode);
  CHECK(time_of(graph, test::staged_gpus({"a", "b"}, kStaging), kElements, kElements) ==
        encode + copy(2 * kElements, kStaging) + at(2 * kElements, kWire) + kRoute +
            copy(2 * kElements, kStaging) + copy(4 * kElements, kDecode));
}

TEST_CASE("the two directions do not wait for each other, two messages of one do") {
  constexpr std::int64_t kElements = 100'000;
  constexpr std::int64_t kStaging = 2'000'000'000;
  const Duration one_copy = copy(4 * kElements, kStaging);
  const Duration wire = at(4 * kElements, kWire);
  TransferGraph exchange("exchange", plan::Collective::kAllGather, 2, {1, 1});
  exchange.set_owners({Rank(0), Rank(1)});
  exchange.add_transfer({.src = Rank(0), .dst = Rank(1), .chunk_begin = 0, .op = TransferOp::kCopy},
                        {});
  exchange.add_transfer({.src = Rank(1), .dst = Rank(0), .chunk_begin = 1, .op = TransferOp::kCopy},
                        {});
  CHECK(time_of(exchange, test::staged_gpus({"a", "b"}, kStaging), 2 * kElements, kElements) ==
        one_copy + wire + kRoute + one_copy);

  // Two messages of one device are copied one after the other; while the second is, the first has
  // half the sender's link for the time that both need it.
  TransferGraph spread("spread", plan::Collective::kAllGather, 3, {1});
  spread.add_transfer(message(0, 1), {});
  spread.add_transfer(message(0, 2), {});
  const Duration both_left = one_copy + 2 * wire;
  CHECK(time_of(spread, test::staged_gpus({"a", "b", "c"}, kStaging), kElements, kElements) ==
        both_left + kRoute + one_copy);
  // A switch that copies needs it once.
  const Topology topology = test::staged_gpus({"a", "b", "c"}, kStaging);
  topology::Router router(topology);
  TransferGraph grouped("grouped", plan::Collective::kAllGather, 3, {1});
  grouped.set_owners({Rank(0)});
  for (std::uint32_t r = 1; r < 3; ++r) {
    plan::Transfer one = message(0, r);
    one.route = grouped.add_route(router.route(Rank(0), Rank(r)));
    grouped.add_transfer(one, {});
  }
  grouped.add_group(TransferId(0), 2);
  REQUIRE(plan::verify(grouped, &topology).ok());
  CHECK(time_of(grouped, topology, kElements, kElements) == one_copy + wire + kRoute + one_copy);
}

TEST_CASE("a buffer is free as soon as it is copied out") {
  // Rank 0 sends what it has and takes in what rank 2 sends over it, which it may once its own is
  // in host memory, before it has left.
  constexpr std::int64_t kElements = 100'000;
  constexpr std::int64_t kStaging = 4'000'000'000;
  TransferGraph graph("swap", plan::Collective::kAllGather, 3, {1});
  const TransferId left = graph.add_transfer(message(0, 1), {});
  graph.add_transfer(message(0, 2), {{left}});
  const Duration one_copy = copy(4 * kElements, kStaging);
  // The second copy begins at the end of the first, not when the first message has left.
  const auto result = simulate_collective(
      graph, kElements, kElements, test::staged_gpus({"a", "b", "c"}, kStaging), device_options());
  CHECK(result.time == one_copy + 2 * at(4 * kElements, kWire) + kRoute + one_copy);
}

TEST_CASE("at the packet level the copies are those of the flow level") {
  constexpr std::int64_t kElements = 1'024 * 100;
  constexpr std::int64_t kStaging = 2'000'000'000;
  TransferGraph graph("one", plan::Collective::kAllGather, 2, {1});
  graph.add_transfer(message(0, 1), {});
  const auto time = [&](std::int64_t staging) {
    return time_of(graph, test::staged_gpus({"a", "b"}, staging), kElements, kElements,
                   NetworkLevel::kPacket);
  };
  const Duration one_copy = copy(4 * kElements, kStaging);
  CHECK(time(kStaging) == time(0) + one_copy + one_copy);
}

TEST_CASE("copies are no work of a host's cores") {
  constexpr std::int64_t kElements = 100'000;
  constexpr std::int64_t kStaging = 500'000'000;
  Topology topology = test::staged_gpus({"a", "b"}, kStaging);
  for (std::uint32_t r = 0; r < 2; ++r) {
    const NodeId one = topology.add_node({.name = fmt::format("processor{}.0", r)});
    const NodeId other = topology.add_node({.name = fmt::format("processor{}.1", r)});
    topology.set_processor(Rank(r), topology.add_link({.from = one,
                                                       .to = other,
                                                       .bandwidth = Bandwidth(kWire),
                                                       .latency = {},
                                                       .kind = topology::LinkKind::kShared}));
  }
  TransferGraph graph("one", plan::Collective::kAllGather, 2, {1});
  graph.add_transfer(message(0, 1), {});
  const Duration one_copy = copy(4 * kElements, kStaging);
  CHECK(time_of(graph, topology, kElements, kElements) ==
        one_copy + at(4 * kElements, kWire) + kRoute + one_copy);
}

TEST_CASE("a staged ring takes the same by formulas, folded or as it is") {
  std::vector<std::string> hosts;
  std::vector<Rank> order;
  for (std::uint32_t r = 0; r < 8; ++r) {
    hosts.push_back(fmt::format("host{}", r));
    order.emplace_back(r);
  }
  constexpr std::int64_t kChunk = 65'536;
  constexpr std::int64_t kStaging = 3'000'000'000;
  const auto schedule = plan::make_ring_schedule(order);
  SimulationOptions options = device_options();
  const auto time = [&](const Topology& topology, bool folds) {
    options.use_symmetry = folds;
    return simulate_collective(*schedule, 8 * kChunk, kChunk, topology, options);
  };
  const Topology all = test::staged_gpus(hosts, kStaging);
  const Duration hop = copy(4 * kChunk, kStaging) + at(4 * kChunk, kWire) + kRoute +
                       copy(4 * kChunk, kStaging) + kLaunch + at(4 * kChunk, INT64_MAX);
  const Duration way_back = hop - kLaunch - at(4 * kChunk, INT64_MAX);
  CHECK(time(all, true).copies > 1);
  CHECK(time(all, true).time == 7 * hop + 7 * way_back);
  CHECK(time(all, false).time == time(all, true).time);
  // Where one GPU alone is staged, ranks are not alike.
  Topology one = test::staged_gpus(hosts, 0);
  topology::Node node = one.node(one.node_of(Rank(3)));
  node.host_staging = Bandwidth(kStaging);
  one.set_node_properties(one.node_of(Rank(3)), node);
  CHECK(time(one, true).copies == 1);
  CHECK(time(one, true).time == time(one, false).time);
  CHECK(time(one, true).time > time(test::staged_gpus(hosts, 0), true).time);
}

TEST_CASE("over NVLink alone hosts are one, and nothing is staged") {
  Topology topology("rack of NVLink");
  const NodeId hub = topology.add_node({.name = "hub", .kind = topology::NodeKind::kNvSwitch});
  for (const char* host : {"a", "b"}) {
    topology::Node node{
        .name = std::string("gpu-") + host, .kind = topology::NodeKind::kGpu, .host = host};
    node.host_staging = Bandwidth(1'000'000'000);
    const NodeId gpu = topology.add_node(node);
    topology.add_rank(gpu);
    topology.add_duplex_link({.from = gpu,
                              .to = hub,
                              .bandwidth = Bandwidth(kWire),
                              .latency = kLatency,
                              .kind = topology::LinkKind::kNvlink});
  }
  TransferGraph graph("one", plan::Collective::kAllGather, 2, {1});
  graph.add_transfer(message(0, 1), {});
  CHECK(time_of(graph, topology, 100'000, 100'000) == at(400'000, kWire) + kRoute);
}

TEST_CASE("copies are on the critical path, and on tracks of their own") {
  TransferGraph graph("one", plan::Collective::kAllGather, 2, {1});
  graph.add_transfer(message(0, 1), {});
  SimulationOptions options = device_options();
  options.record_critical_path = true;
  options.record_timeline = true;
  const auto result = simulate_collective(graph, 100'000, 100'000,
                                          test::staged_gpus({"a", "b"}, 500'000'000), options);
  std::vector<std::string> kinds;
  for (const PathPiece& piece : result.records.critical_path) {
    kinds.push_back(piece.kind);
  }
  CHECK(kinds == std::vector<std::string>{"copy to host memory", "wire", "latency",
                                          "copy from host memory"});
  const auto has_track = [&](const std::string& track) {
    return std::any_of(result.records.timeline.begin(), result.records.timeline.end(),
                       [&](const plan::TimelineEvent& event) { return event.track == track; });
  };
  CHECK(has_track("rank 0 copies to host memory"));
  CHECK(has_track("rank 1 copies from host memory"));
}

}  // namespace
}  // namespace rackrail::sim::host_staging_test
