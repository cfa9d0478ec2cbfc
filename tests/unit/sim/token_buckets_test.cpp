#include "sim/token_buckets.hpp"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::sim {
namespace {

using topology::Topology;

constexpr Time kMicrosecond = 1'000'000;

/// 1 GB/s with a bucket of 64 kB; 0.5 GB/s with one of 20 kB; 2 GB/s without.
struct Net {
  Net() {
    add(Bandwidth(1'000'000'000), Bytes(64'000));
    add(Bandwidth(500'000'000), Bytes(20'000));
    add(Bandwidth(2'000'000'000), Bytes());
    network.emplace(topology);
  }
  void add(Bandwidth rate, Bytes burst) {
    const NodeId a = topology.add_node({.name = "a" + std::to_string(links.size())});
    const NodeId b = topology.add_node({.name = "b" + std::to_string(links.size())});
    links.push_back(topology.add_link({.from = a, .to = b, .bandwidth = rate, .burst = burst}));
  }

  /// When the sender of each flow lets go, by tag; until nothing moves.
  std::vector<Time> ends(std::size_t count, Time now = 0) {
    std::vector<Time> result(count, -1);
    for (Time next = network->next_event(now); next >= 0; next = network->next_event(now)) {
      now = next;
      std::vector<FlowEvent> events;
      network->take_events(now, events);
      for (const FlowEvent& event : events) {
        if (!event.is_delivered) {
          result.at(event.tag) = now;
        }
      }
    }
    return result;
  }

  Topology topology{"net"};
  std::vector<LinkId> links;
  std::optional<TokenBuckets> network;
};

TEST_CASE("what the bucket of an idle link has tokens for goes at once, the rest at its rate") {
  Net net;
  const std::vector<LinkId> way = {net.links[0]};
  SECTION("all of it") {
    net.network->start(0, 64'000, way, 0, 0);
    CHECK(net.ends(1) == std::vector<Time>{0});
    CHECK(net.network->tokens(0, way[0]) == 0);
  }
  SECTION("a part") {
    net.network->start(0, 100'000, way, 0, 0);
    CHECK(net.ends(1) == std::vector<Time>{36 * kMicrosecond});
  }
}

TEST_CASE("an idle link fills its bucket at its rate, and no further") {
  Net net;
  const std::vector<LinkId> way = {net.links[0]};
  net.network->start(0, 100'000, way, 0, 0);
  CHECK(net.ends(1)[0] == 36 * kMicrosecond);
  CHECK(net.network->tokens(36 * kMicrosecond, way[0]) == Approx(0).margin(1e-6));
  // 10 us: 10 kB of the next 30 kB are there at once.
  const Time begin = 46 * kMicrosecond;
  net.network->start(begin, 30'000, way, 0, 0);
  CHECK(net.ends(1, begin)[0] == begin + 20 * kMicrosecond);
  CHECK(net.network->tokens(1000 * kMicrosecond, way[0]) == 64'000);
}

TEST_CASE("of several buckets on the way the one with the fewest tokens counts") {
  Net net;
  const std::vector<LinkId> way = {net.links[0], net.links[1]};
  net.network->start(0, 70'000, way, 0, 0);
  // 20 kB at once, 50 kB at 0.5 GB/s.
  CHECK(net.ends(1)[0] == 100 * kMicrosecond);
  // The faster link lost 20 kB and gained 0.5 GB/s for 100 us meanwhile; the slower one is empty.
  CHECK(net.network->tokens(100 * kMicrosecond, way[0]) == 64'000);
  CHECK(net.network->tokens(100 * kMicrosecond, way[1]) == Approx(0).margin(1e-6));
}

TEST_CASE("a link that carries less than its rate gains what is left of it") {
  Net net;
  const std::vector<LinkId> way = {net.links[0], net.links[1]};
  const std::vector<LinkId> first = {net.links[0]};
  net.network->start(0, 64'000, first, 0, 0);  // takes all its tokens
  net.network->start(0, 50'000, way, 0, 1);    // 100 us at 0.5 GB/s
  CHECK(net.ends(2) == std::vector<Time>{0, 100 * kMicrosecond});
  CHECK(net.network->tokens(100 * kMicrosecond, first[0]) == Approx(50'000));
}

TEST_CASE("bytes that go ahead take their time on links without a bucket") {
  Net net;
  const std::vector<LinkId> way = {net.links[0], net.links[2]};
  const std::vector<double> shares = {1, 0.5};
  net.network->start_spread(0, 100'000, {way, shares, Duration(), 0}, 0);
  // 64 kB at 4 GB/s, for a byte takes half a byte of the link of 2 GB/s; then 36 kB at 1 GB/s.
  CHECK(net.ends(1)[0] == 52 * kMicrosecond);
}

TEST_CASE("messages that come together share the tokens in the order of their beginning") {
  Net net;
  const std::vector<LinkId> way = {net.links[0]};
  net.network->start(0, 60'000, way, 0, 0);
  net.network->start(0, 24'000, way, 0, 1);
  // 4 kB of the second are there at once.
  CHECK(net.ends(2) == std::vector<Time>{0, 20 * kMicrosecond});
}

TEST_CASE("the latency of the way follows the last byte") {
  Topology topology("two");
  const NodeId a = topology.add_node({.name = "a"});
  const NodeId b = topology.add_node({.name = "b"});
  const std::vector<LinkId> way = {topology.add_link({.from = a,
                                                      .to = b,
                                                      .bandwidth = Bandwidth(1'000'000'000),
                                                      .latency = 5_us,
                                                      .burst = Bytes(64'000)})};
  TokenBuckets network(topology);
  for (const std::int64_t bytes : {64'000, 100'000}) {
    const Time begin = bytes == 64'000 ? 0 : 1'000 * kMicrosecond;
    network.start(begin, bytes, way, 0, 0);
    Time now = begin;
    Time delivered = -1;
    for (Time next = network.next_event(now); next >= 0; next = network.next_event(now)) {
      now = next;
      std::vector<FlowEvent> events;
      network.take_events(now, events);
      for (const FlowEvent& event : events) {
        delivered = event.is_delivered ? now : delivered;
      }
    }
    CHECK(delivered == begin + (bytes - 64'000) / 1000 * kMicrosecond + 5 * kMicrosecond);
  }
}

TEST_CASE("messages of a plan go ahead at the flow level, where links have buckets") {
  // Two hosts, 1 GB/s each way; one sends 100 kB to the other, which sends as much back.
  const auto microseconds = [](Bytes burst) {
    Topology topology("pair");
    for (const char* name : {"host0", "host1"}) {
      topology.add_rank(
          topology.add_node({.name = name, .kind = topology::NodeKind::kHost, .host = name}));
    }
    topology.add_duplex_link({.from = topology.node_of(Rank(0)),
                              .to = topology.node_of(Rank(1)),
                              .bandwidth = 1_GBps,
                              .burst = burst});
    plan::TransferGraph graph("there and back", plan::Collective::kAllReduce, 2, {1});
    const TransferId there = graph.add_transfer({.src = Rank(0), .dst = Rank(1)}, {});
    graph.add_transfer({.src = Rank(1), .dst = Rank(0)}, std::vector{there});
    return simulate_collective(graph, 25'000, 25'000, topology, {}).time.seconds() * 1e6;
  };
  CHECK(microseconds(Bytes()) == Approx(200));
  CHECK(microseconds(Bytes(64'000)) == Approx(72));
}

TEST_CASE("a burst is read from lists of links, and is part of the cluster's digest") {
  const std::string csv =
      "source,target,bandwidth,latency,burst\nhost0,s,1 GB/s,1 us,64 KiB\nhost1,s,1 GB/s,1 us,\n";
  const auto edges = topology::read_cluster_text("edges.csv", csv, {});
  CHECK(edges.topology.link(LinkId(0)).burst == 64_KiB);
  CHECK(edges.topology.link(LinkId(2)).burst == Bytes());
  const auto without = topology::read_cluster_text(
      "edges.csv", "source,target,bandwidth,latency\nhost0,s,1 GB/s,1 us\nhost1,s,1 GB/s,1 us\n",
      {});
  CHECK(edges.topology.digest() != without.topology.digest());
  const auto flat =
      topology::read_cluster_text("flat.yaml", topology::to_flat_yaml(edges.topology), {});
  CHECK(flat.topology.link(LinkId(0)).burst == 64_KiB);
  CHECK(flat.topology.digest() == edges.topology.digest());
}

}  // namespace
}  // namespace rackrail::sim
