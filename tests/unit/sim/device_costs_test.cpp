// Collectives on devices that take time to add, encode and decode, by closed form.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "sim/simulator.hpp"

namespace rackrail::sim::device_costs_test {
namespace {

using topology::Topology;

constexpr Duration kLatency = 3_us;              // of a link; a route has two
constexpr std::int64_t kWire = 1'000'000'000;    // B/s
constexpr std::int64_t kAdd = 4'000'000'000;     // B/s of FP32
constexpr std::int64_t kEncode = 2'000'000'000;  // the same
constexpr std::int64_t kDecode = 8'000'000'000;  // the same
constexpr Duration kLaunch = 7_us;

Topology hosts_on_a_switch(std::size_t n) {
  Topology topology("hosts on a switch");
  const NodeId hub = topology.add_node({.name = "hub", .kind = topology::NodeKind::kTor});
  for (std::size_t i = 0; i < n; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host =
        topology.add_node({.name = name, .kind = topology::NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link(
        {.from = host, .to = hub, .bandwidth = Bandwidth(kWire), .latency = kLatency});
  }
  return topology;
}

SimulationOptions slow_devices(NetworkLevel level = NetworkLevel::kFlow) {
  plan::DeviceRates rates;
  rates.codecs.fill({Bandwidth(kEncode), Bandwidth(kDecode)});
  rates.reduce = Bandwidth(kAdd);
  rates.launch = kLaunch;
  SimulationOptions options;
  options.device_rates = rates;
  options.network = level;
  return options;
}

Duration at(std::int64_t bytes, std::int64_t rate) { return Bytes(bytes) / Bandwidth(rate); }

/// A sum that goes from rank to rank, and is then copied all the way back where `returns`.
plan::TransferGraph chain(std::size_t ranks, const plan::Codec& codec, bool returns) {
  plan::TransferGraph graph("chain", plan::Collective::kAllReduce, ranks, {1});
  const std::uint8_t number = graph.add_codec(codec);
  std::vector<TransferId> last;
  const auto hop = [&](std::size_t src, std::size_t dst, plan::TransferOp op) {
    last = {
        graph.add_transfer({.src = Rank(src), .dst = Rank(dst), .op = op, .codec = number}, last)};
  };
  for (std::size_t r = 0; r + 1 < ranks; ++r) {
    hop(r, r + 1, plan::TransferOp::kReduce);
  }
  for (std::size_t r = returns ? ranks - 1 : 0; r > 0; --r) {
    hop(r, r - 1, plan::TransferOp::kCopy);
  }
  return graph;
}

TEST_CASE("a ring adds n - 1 times, each a launch and the chunk at the rate of additions") {
  const std::size_t n = GENERATE(2U, 3U, 8U, 17U);
  const Topology topology = hosts_on_a_switch(n);
  std::vector<Rank> order;
  for (std::size_t r = 0; r < n; ++r) {
    order.emplace_back(r);
  }
  constexpr std::int64_t kChunk = 65'536;  // elements
  const auto elements = static_cast<std::int64_t>(n) * kChunk;
  const auto steps = static_cast<std::int64_t>(n - 1);
  const Duration hop = at(4 * kChunk, kWire) + kLatency + kLatency;
  CAPTURE(n);
  const auto time = [&](const SimulationOptions& options) {
    return simulate_collective(*plan::make_ring_schedule(order), elements, kChunk, topology,
                               options)
        .time;
  };
  const Duration devices = steps * (kLaunch + at(4 * kChunk, kAdd));
  CHECK(time(slow_devices()) == 2 * steps * hop + devices);
  // The switch stores a packet before it forwards it.
  CHECK(time(slow_devices(NetworkLevel::kPacket)) == 2 * steps * (hop + at(4096, kWire)) + devices);
}

TEST_CASE("a chain of sums is a pipeline of links and devices: the slowest stage sets its pace") {
  const std::size_t ranks = GENERATE(2U, 4U, 7U);
  const std::int64_t slices = GENERATE(1, 8, 50);
  // Of slices of 1,000 elements an addition with its launch is slower than the link, of slices of
  // 10,000 it is faster.
  const std::int64_t slice = GENERATE(1'000, 10'000);
  const Duration wire = at(4 * slice, kWire);
  const Duration add = kLaunch + at(4 * slice, kAdd);
  const auto hops = static_cast<std::int64_t>(ranks - 1);
  CAPTURE(ranks, slices, slice);
  CHECK((wire < add) == (slice == 1'000));
  const auto result = simulate_collective(chain(ranks, {}, false), slices * slice, slice,
                                          hosts_on_a_switch(ranks), slow_devices());
  CHECK(result.time ==
        hops * (wire + kLatency + kLatency + add) + (slices - 1) * std::max(wire, add));
}

TEST_CASE("a sum is encoded on every hop, and a copy once, where it starts") {
  const std::size_t ranks = GENERATE(2U, 3U, 6U);
  constexpr std::int64_t kElements = 100'000;
  const auto hops = static_cast<std::int64_t>(ranks - 1);
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  const Duration wire = at(2 * kElements, kWire) + kLatency + kLatency;
  const Duration encode = kLaunch + at(4 * kElements, kEncode);
  const Duration decode = kLaunch + at(4 * kElements, kDecode);
  CAPTURE(ranks);
  const Topology topology = hosts_on_a_switch(ranks);
  const auto sum = simulate_collective(chain(ranks, fp16, false), kElements, kElements, topology,
                                       slow_devices());
  CHECK(sum.time == hops * (encode + wire + decode));
  // On the way back the last rank encodes the sum and decodes it into its own buffer; the others
  // decode it before they pass on the bytes as they came.
  const auto both =
      simulate_collective(chain(ranks, fp16, true), kElements, kElements, topology, slow_devices());
  CHECK(both.time == sum.time + encode + decode + hops * (wire + decode));
}

TEST_CASE("a device that was idle wakes up first, one that is busy does not") {
  constexpr std::int64_t kElements = 10'000;
  constexpr Duration kWake = 20_us;
  SimulationOptions options = slow_devices();
  options.device_rates->wake = kWake;
  const auto result =
      simulate_collective(chain(2, {}, false), kElements, kElements, hosts_on_a_switch(2), options);
  CHECK(result.time ==
        at(4 * kElements, kWire) + kLatency + kLatency + kWake + kLaunch + at(4 * kElements, kAdd));
}

TEST_CASE("additions to one buffer queue on a device: the way to it is hidden after the first") {
  constexpr std::int64_t kElements = 10'000;
  constexpr Duration kWake = 20_us;
  const std::size_t ranks = GENERATE(3U, 5U, 40U);
  CAPTURE(ranks);
  plan::TransferGraph star("star", plan::Collective::kAllReduce, ranks, {1});
  for (std::size_t r = 1; r < ranks; ++r) {
    star.add_transfer({.src = Rank(r), .dst = Rank(0), .op = plan::TransferOp::kReduce}, {});
  }
  SimulationOptions options = slow_devices();
  options.device_rates->wake = kWake;
  const Topology topology = hosts_on_a_switch(ranks);
  const auto additions = static_cast<std::int64_t>(ranks - 1);
  // All arrive at one time over the root's link.
  const auto queued = simulate_collective(star, kElements, kElements, topology, options);
  CHECK(queued.time == at(4 * kElements * additions, kWire) + kLatency + kLatency + kWake +
                           additions * (kLaunch + at(4 * kElements, kAdd)));
}

TEST_CASE("additions of other ranges wait for all that they overlap, queued or not") {
  // Two halves come first, one after the other over their link; then what is added to both.
  plan::TransferGraph graph("halves", plan::Collective::kAllReduce, 3, {1, 1});
  const auto add = [&](std::size_t from, std::uint32_t chunk, std::uint32_t count) {
    graph.add_transfer({.src = Rank(from),
                        .dst = Rank(0),
                        .chunk_begin = chunk,
                        .chunk_count = count,
                        .op = plan::TransferOp::kReduce},
                       {});
  };
  add(1, 0, 1);
  add(1, 1, 1);
  add(2, 0, 2);
  constexpr std::int64_t kElements = 20'000;
  const std::int64_t slice = GENERATE(5'000, 20'000);
  CAPTURE(slice);
  const Topology topology = hosts_on_a_switch(3);
  SimulationOptions options = slow_devices();
  const auto asleep_never = simulate_collective(graph, kElements, slice, topology, options);
  options.device_rates->wake = 20_us;
  const auto queued = simulate_collective(graph, kElements, slice, topology, options);
  CHECK(queued.time >= asleep_never.time);
  // The device wakes up for the first addition, and once more at most: for the last slice.
  CHECK(queued.time <= asleep_never.time + 2 * 20_us);
}

}  // namespace
}  // namespace rackrail::sim::device_costs_test
