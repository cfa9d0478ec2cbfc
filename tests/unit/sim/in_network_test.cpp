// Groups that switches carry out as one: times against closed forms.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/transfer_graph.hpp"
#include "plan/verifier.hpp"
#include "sim/simulator.hpp"
#include "topology/queries.hpp"

namespace rackrail::in_network_test {
namespace {

using plan::TransferGraph;
using plan::TransferOp;
using topology::Topology;

constexpr std::int64_t kRate = 1'000'000'000;  // bytes per second: a byte takes 1,000 ps
constexpr std::int64_t kLatency = 5'000'000;   // of a link, in ps
constexpr std::int64_t kAddition = 1;          // at any rate, rounded up to a picosecond

/// Of `rate` gigabytes per second.
void add_cable(Topology& t, NodeId from, NodeId to, int rate) {
  topology::Link link;
  link.from = from;
  link.to = to;
  link.bandwidth = Bandwidth(kRate * rate);
  link.latency = Duration(kLatency);
  t.add_duplex_link(link);
}

void add_rank(Topology& t, NodeId at, int rate) {
  const std::string name = "gpu" + std::to_string(t.rank_count());
  const NodeId gpu = t.add_node({.name = name, .kind = topology::NodeKind::kGpu});
  t.add_rank(gpu);
  add_cable(t, gpu, at, rate);
}

/// `ranks` on one switch; rank r has `rates[r]` gigabytes per second, 1 beyond the list.
Topology star(int ranks, bool able, const std::vector<int>& rates = {}) {
  Topology t("star");
  const NodeId hub = t.add_node(
      {.name = "hub", .kind = topology::NodeKind::kNvSwitch, .multicasts = able, .reduces = able});
  for (int r = 0; r < ranks; ++r) {
    const auto i = static_cast<std::size_t>(r);
    add_rank(t, hub, i < rates.size() ? rates[i] : 1);
  }
  return t;
}

sim::SimulationOptions instant_additions() {
  sim::SimulationOptions options;
  plan::DeviceRates rates = plan::device_rates("H100");
  rates.reduce = Bandwidth(INT64_MAX);
  rates.launch = rates.wake = Duration();
  options.device_rates = rates;
  return options;
}

/// One chunk: every rank's to rank 0, added, and back.
TransferGraph there_and_back(const Topology& t, bool grouped) {
  topology::Router router(t);
  TransferGraph graph("star", plan::Collective::kAllReduce, t.rank_count(), {1});
  const auto leaves = static_cast<std::uint32_t>(t.rank_count() - 1);
  std::vector<TransferId> sums;
  for (std::uint32_t r = 1; r <= leaves; ++r) {
    sums.push_back(graph.add_transfer({.src = Rank(r),
                                       .dst = Rank(0),
                                       .op = TransferOp::kReduce,
                                       .route = graph.add_route(router.route(Rank(r), Rank(0)))},
                                      {}));
  }
  for (std::uint32_t r = 1; r <= leaves; ++r) {
    graph.add_transfer(
        {.src = Rank(0), .dst = Rank(r), .route = graph.add_route(router.route(Rank(0), Rank(r)))},
        sums);
  }
  if (grouped) {
    graph.add_group(TransferId(0), leaves);
    graph.add_group(TransferId(leaves), leaves);
  }
  return graph;
}

std::int64_t picoseconds(const TransferGraph& graph, const Topology& t, std::int64_t elements,
                         std::int64_t slice, const sim::SimulationOptions& options) {
  return sim::simulate_collective(graph, elements, slice, t, options).time.picoseconds();
}

TEST_CASE("A group passes each link of its tree once, in the time of its slowest link") {
  constexpr std::int64_t kElements = 1000;
  constexpr std::int64_t kBytesTime = kElements * 4 * 1000;
  // A reduction, two links, and a multicast, two links: however many ranks.
  for (const int ranks : {3, 8, 17}) {
    CAPTURE(ranks);
    const Topology t = star(ranks, true);
    const TransferGraph graph = there_and_back(t, true);
    REQUIRE(plan::verify(graph, &t).ok());
    CHECK(picoseconds(graph, t, kElements, kElements, instant_additions()) ==
          2 * (kBytesTime + 2 * kLatency) + kAddition);
  }
  // The fast ranks wait for the slow one.
  const Topology uneven = star(4, true, {4, 4, 1, 4});
  CHECK(picoseconds(there_and_back(uneven, true), uneven, kElements, kElements,
                    instant_additions()) == 2 * (kBytesTime + 2 * kLatency) + kAddition);
  // Slices of both directions pipeline: one more than the slices of a chunk.
  const Topology t = star(5, true);
  CHECK(picoseconds(there_and_back(t, true), t, kElements, kElements / 10, instant_additions()) ==
        11 * kBytesTime / 10 + 4 * kLatency + kAddition);
}

TEST_CASE("What the switches cannot do moves one by one") {
  constexpr std::int64_t kElements = 1000;
  const Topology able = star(5, true);
  const Topology plain = star(5, false);
  const auto options = instant_additions();
  const auto one_by_one = picoseconds(there_and_back(able, false), able, kElements, 100, options);
  // Four ranks share rank 0's link each way.
  CHECK(one_by_one >= 2 * 4 * kElements * 4 * 1000 / 2);
  CHECK(picoseconds(there_and_back(plain, true), plain, kElements, 100, options) == one_by_one);
}

TEST_CASE("A reduction in switches is one addition at its root") {
  constexpr std::int64_t kElements = 1000;
  const Topology t = star(6, true);
  auto options = instant_additions();
  const auto without = picoseconds(there_and_back(t, true), t, kElements, kElements, options);
  options.device_rates->launch = Duration(7'000'000);
  CHECK(picoseconds(there_and_back(t, true), t, kElements, kElements, options) ==
        without + 7'000'000);
}

TEST_CASE("Links carry a group's bytes once") {
  constexpr std::int64_t kElements = 1000;
  const Topology t = star(4, true);
  const auto result = sim::simulate_collective(there_and_back(t, true), kElements, 100, t, {});
  REQUIRE(result.links.size() == t.link_count());
  for (const sim::LinkUse& use : result.links) {
    CAPTURE(t.link_name(use.link));
    CHECK(use.bytes == Bytes(kElements * 4));
  }
  CHECK(result.flows == 20);
}

/// Ranks on a leaf that passes on only, under a spine that copies and adds: links 2r and 2r + 1 are
/// those of rank r, then come the leaf's cable and back.
Topology under_a_spine(int ranks) {
  Topology t("under a spine");
  const NodeId leaf = t.add_node({.name = "leaf", .kind = topology::NodeKind::kSwitch});
  for (int r = 0; r < ranks; ++r) {
    add_rank(t, leaf, 1);
  }
  add_cable(t, leaf,
            t.add_node({.name = "spine",
                        .kind = topology::NodeKind::kSwitch,
                        .multicasts = true,
                        .reduces = true}),
            1);
  return t;
}

/// Every rank's to rank 0, added under way by the spine.
TransferGraph sum_by_the_spine(std::uint32_t ranks) {
  TransferGraph graph("sum", plan::Collective::kReduceScatter, ranks, {1});
  graph.set_owners({Rank(0)});
  const LinkId up(2 * ranks);
  const LinkId down(2 * ranks + 1);
  for (std::uint32_t r = 1; r < ranks; ++r) {
    graph.add_transfer({.src = Rank(r),
                        .dst = Rank(0),
                        .op = TransferOp::kReduce,
                        .route = graph.add_route({LinkId(2 * r), up, down, LinkId(1)})},
                       {});
  }
  graph.add_group(TransferId(0), ranks - 1);
  return graph;
}

TEST_CASE("Where ways of a group meet at a switch that only passes on, a link carries each") {
  constexpr std::int64_t kElements = 1000;
  constexpr std::int64_t kBytesTime = kElements * 4 * 1000;
  for (const std::uint32_t ranks : {3U, 5U}) {
    CAPTURE(ranks);
    const Topology t = under_a_spine(static_cast<int>(ranks));
    const TransferGraph graph = sum_by_the_spine(ranks);
    REQUIRE(plan::verify(graph, &t).ok());
    const auto result =
        sim::simulate_collective(graph, kElements, kElements, t, instant_additions());
    // All streams go up over one cable, and one sum comes down.
    CHECK(result.time.picoseconds() == (ranks - 1) * kBytesTime + 4 * kLatency + kAddition);
    for (const sim::LinkUse& use : result.links) {
      const std::int64_t times = use.link == LinkId(2 * ranks) ? ranks - 1 : 1;
      CAPTURE(t.link_name(use.link));
      CHECK(use.bytes == Bytes(times * kElements * 4));
    }
  }
}

TEST_CASE("Packets whose ways meet at a switch that only passes on are sent one by one") {
  const Topology t = under_a_spine(4);
  auto options = instant_additions();
  options.network = sim::NetworkLevel::kPacket;
  const auto bytes_down = [&](const TransferGraph& graph) {
    const auto result = sim::simulate_collective(graph, 100'000, 100'000, t, options);
    for (const sim::LinkUse& use : result.links) {
      if (use.link == LinkId(9)) {
        return use.bytes;
      }
    }
    return Bytes();
  };
  CHECK(bytes_down(sum_by_the_spine(4)) == Bytes(3 * 400'000));
  // Where they meet where they are added there is one sum of them, as of flows.
  const Topology hub = star(4, true);
  const auto added =
      sim::simulate_collective(there_and_back(hub, true), 100'000, 100'000, hub, options);
  for (const sim::LinkUse& use : added.links) {
    CHECK(use.bytes == Bytes(400'000));
  }
}

TEST_CASE("A lossy multicast is encoded once and decoded by every receiver") {
  const Topology t = star(4, true);
  topology::Router router(t);
  TransferGraph graph("spread", plan::Collective::kAllGather, 4, {1});
  graph.set_owners({Rank(0)});
  const std::uint8_t codec = graph.add_codec({.kind = plan::CodecKind::kFp16});
  for (std::uint32_t r = 1; r < 4; ++r) {
    graph.add_transfer({.src = Rank(0),
                        .dst = Rank(r),
                        .codec = codec,
                        .route = graph.add_route(router.route(Rank(0), Rank(r)))},
                       {});
  }
  graph.add_group(TransferId(0), 3);
  REQUIRE(plan::verify(graph, &t).ok());
  auto options = instant_additions();
  auto& rate = options.device_rates->codecs[static_cast<std::size_t>(plan::CodecKind::kFp16)];
  rate = {.encode = Bandwidth(kRate), .decode = Bandwidth(2 * kRate)};
  // Encode and replace its own (6 µs for 4,000 bytes), half the bytes on the wire, decode.
  CHECK(picoseconds(graph, t, 1000, 1000, options) ==
        6'000'000 + 2'000'000 + 2 * kLatency + 2'000'000);
}

TEST_CASE("At the packet level switches copy packets, and add those of all members") {
  constexpr std::int64_t kPacket = 4'096'000;  // ps of 4,096 bytes at 1 GB/s
  constexpr std::int64_t kPackets = 100;
  auto options = instant_additions();
  options.network = sim::NetworkLevel::kPacket;
  // The switch sends a packet when it has all of it: a packet more each way.
  for (const int ranks : {3, 8, 17}) {
    CAPTURE(ranks);
    const Topology t = star(ranks, true);
    CHECK(picoseconds(there_and_back(t, true), t, kPackets * 1024, kPackets * 1024, options) ==
          2 * ((kPackets + 1) * kPacket + 2 * kLatency) + kAddition);
  }
  // The others wait for the slow one, which is held back by nobody.
  const Topology uneven = star(4, true, {4, 4, 1, 4});
  const auto time =
      picoseconds(there_and_back(uneven, true), uneven, kPackets * 1024, kPackets * 1024, options);
  const auto least = 2 * (kPackets * kPacket + kPacket / 4 + 2 * kLatency) + kAddition;
  CHECK(time >= least);
  CHECK(static_cast<double>(time) < 1.05 * static_cast<double>(least));
  // One by one they are slower there as well.
  CHECK(picoseconds(there_and_back(uneven, false), uneven, kPackets * 1024, kPackets * 1024,
                    options) > time);

  options.packets.overload = sim::Overload::kTrim;
  CHECK_THROWS_AS(picoseconds(there_and_back(uneven, true), uneven, 1000, 1000, options),
                  ConfigError);
}

/// Two hubs, to each of which three ranks have a link.
Topology two_hubs() {
  Topology t("two hubs");
  std::vector<NodeId> hubs;
  for (const char* name : {"hub0", "hub1"}) {
    hubs.push_back(t.add_node(
        {.name = name, .kind = topology::NodeKind::kSwitch, .multicasts = true, .reduces = true}));
  }
  for (int r = 0; r < 3; ++r) {
    const NodeId gpu =
        t.add_node({.name = "gpu" + std::to_string(r), .kind = topology::NodeKind::kGpu});
    t.add_rank(gpu);
    for (const NodeId hub : hubs) {
      topology::Link link;
      link.from = gpu;
      link.to = hub;
      link.bandwidth = Bandwidth(kRate);
      link.latency = Duration(kLatency);
      t.add_duplex_link(link);
    }
  }
  return t;
}

/// Two chunks of rank 0 to the others, each over the hub of this number, and at this rate.
TransferGraph two_multicasts(const std::vector<int>& hubs, Bandwidth rate = {}) {
  TransferGraph graph("two", plan::Collective::kAllGather, 3, {1, 1});
  graph.set_owners({Rank(0), Rank(0)});
  // Rank r's cable to hub h is 2r + h: links 4r + 2h there and 4r + 2h + 1 back.
  for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
    const int up = 2 * hubs[chunk];
    for (int r = 1; r < 3; ++r) {
      const RouteId route = graph.add_route({LinkId(up), LinkId(4 * r + up + 1)}, rate);
      graph.add_transfer({.src = Rank(0), .dst = Rank(r), .chunk_begin = chunk, .route = route},
                         {});
    }
    graph.add_group(TransferId(2 * chunk), 2);
  }
  return graph;
}

TEST_CASE("Groups of one rank over different trees move at the same time, over one tree in turn") {
  constexpr std::int64_t kElements = 1000;
  constexpr std::int64_t kChunkTime = kElements / 2 * 4 * 1000;
  const Topology t = two_hubs();
  const auto options = instant_additions();
  REQUIRE(plan::verify(two_multicasts({0, 1}), &t).ok());
  CHECK(picoseconds(two_multicasts({0, 1}), t, kElements, kElements, options) ==
        kChunkTime + 2 * kLatency);
  CHECK(picoseconds(two_multicasts({1, 1}), t, kElements, kElements, options) ==
        2 * kChunkTime + 2 * kLatency);
}

TEST_CASE("A group moves no faster than the rate of its routes") {
  constexpr std::int64_t kElements = 1000;
  constexpr std::int64_t kChunkTime = kElements / 2 * 4 * 1000;
  const Topology t = two_hubs();
  CHECK(picoseconds(two_multicasts({0, 1}, Bandwidth(kRate / 4)), t, kElements, kElements,
                    instant_additions()) == 4 * kChunkTime + 2 * kLatency);
}

}  // namespace
}  // namespace rackrail::in_network_test
