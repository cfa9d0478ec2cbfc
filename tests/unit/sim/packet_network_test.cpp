#include "sim/packet_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <random>

#include "base/error.hpp"

namespace rackrail::sim::packet_network_test {
namespace {

using topology::NodeKind;
using topology::Topology;

/// A line of vertices; link i joins vertex i and vertex i + 1.
struct Line {
  Topology topology{"line"};
  std::vector<LinkId> links;
};

Line make_line(const std::vector<Bandwidth>& rates, Duration latency) {
  Line line;
  NodeId last = line.topology.add_node({.name = "v0"});
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const NodeId next = line.topology.add_node({.name = fmt::format("v{}", i + 1)});
    line.links.push_back(line.topology.add_link(
        {.from = last, .to = next, .bandwidth = rates[i], .latency = latency}));
    last = next;
  }
  return line;
}

/// Hosts around a switch; the routes are of `senders` hosts to the last one.
struct Star {
  Topology topology{"star"};
  std::vector<std::vector<LinkId>> routes;
  LinkId last;
};

Star make_star(std::size_t senders, Bandwidth rate, Duration latency) {
  Star star;
  const NodeId hub = star.topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  const NodeId sink = star.topology.add_node({.name = "sink", .kind = NodeKind::kHost});
  star.last =
      star.topology.add_link({.from = hub, .to = sink, .bandwidth = rate, .latency = latency});
  for (std::size_t i = 0; i < senders; ++i) {
    const NodeId host =
        star.topology.add_node({.name = fmt::format("host{}", i), .kind = NodeKind::kHost});
    star.routes.push_back(
        {star.topology.add_link({.from = host, .to = hub, .bandwidth = rate, .latency = latency}),
         star.last});
  }
  return star;
}

struct Ends {
  std::map<FlowTag, Time> sent;
  std::map<FlowTag, Time> delivered;
};

/// Runs to the end.
Ends run(PacketNetwork& network, Time now = 0) {
  Ends ends;
  std::vector<FlowEvent> events;
  for (now = network.next_event(now); now >= 0; now = network.next_event(now)) {
    events.clear();
    network.take_events(now, events);
    for (const FlowEvent& event : events) {
      auto& times = event.is_delivered ? ends.delivered : ends.sent;
      CHECK(times.emplace(event.tag, now).second);
      CHECK(ends.sent.count(event.tag) == 1);
    }
  }
  return ends;
}

Time time_of(std::int64_t bytes, Bandwidth rate) { return (Bytes(bytes) / rate).picoseconds(); }

TEST_CASE("one flow over k equal links takes its bytes, k - 1 more packets and all latencies") {
  const std::size_t hops = GENERATE(1U, 2U, 3U, 6U);
  const std::int64_t packets = GENERATE(1, 2, 7, 1000);
  const Bandwidth rate(12'500'000'000);
  const Line line = make_line(std::vector<Bandwidth>(hops, rate), 700_ns);
  PacketNetwork network(line.topology, {});
  network.start(5, packets * 4096, line.links, 0, 3);
  const Ends ends = run(network, 5);
  CAPTURE(hops, packets);
  const Time packet = time_of(4096, rate);
  const auto k = static_cast<std::int64_t>(hops);
  CHECK(ends.sent.at(3) == 5 + packets * packet);
  CHECK(ends.delivered.at(3) == 5 + (packets + k - 1) * packet + k * 700'000);
  CHECK(network.next_event(ends.delivered.at(3)) == -1);
}

TEST_CASE("the last packet is as short as what is left, and headers travel with every packet") {
  const Bandwidth rate(1'000'000'000);
  const Line line = make_line({rate, rate}, 2_us);
  PacketOptions options;
  options.payload = Bytes(1000);
  options.header = Bytes(64);
  PacketNetwork network(line.topology, options);
  network.start(0, 2500, line.links, 0, 1);
  const Ends ends = run(network);
  // 1064 + 1064 + 564 B at 1 GB/s; on the second link the same without a gap, from 3.064 us on.
  CHECK(ends.sent.at(1) == 2'692'000);
  CHECK(ends.delivered.at(1) == 3'064'000 + 2'692'000 + 2'000'000);
}

TEST_CASE("links of different rates: the narrowest one decides, the others add one packet each") {
  // By hand, for a flow of n packets with packet times t_i: sum of t_i + (n - 1) · max t_i, in any
  // order of links (a pipeline of stages with constant times).
  std::vector<std::int64_t> rates = {4'096'000'000, 1'024'000'000, 2'048'000'000};
  const std::vector<std::int64_t> times = {1'000'000, 4'000'000, 2'000'000};
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    std::vector<Bandwidth> in_order;
    for (const std::size_t i : order) {
      in_order.emplace_back(rates[i]);
    }
    const Line line = make_line(in_order, Duration());
    PacketOptions options;
    options.rate_control = RateControl::kNone;
    PacketNetwork network(line.topology, options);
    constexpr std::int64_t kPackets = 50;
    network.start(0, kPackets * 4096, line.links, 0, 1);
    CHECK(run(network).delivered.at(1) == 7'000'000 + (kPackets - 1) * 4'000'000);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a flow of no bytes takes the latency, and one over no links takes nothing") {
  const Line line = make_line({Bandwidth(1'000'000'000), Bandwidth(1'000'000'000)}, 3_us);
  PacketNetwork network(line.topology, {});
  network.start(100, 0, line.links, 0, 1);
  network.start(100, 5000, {}, 0, 2);
  const Ends ends = run(network, 100);
  CHECK(ends.sent.at(1) == 100);
  CHECK(ends.delivered.at(1) == 6'000'100);
  CHECK(ends.delivered.at(2) == 100);
}

TEST_CASE("a rate cap limits its flow, and the rest of the link is for others") {
  const Bandwidth rate(1'000'000'000);
  const Line line = make_line({rate}, Duration());
  PacketNetwork network(line.topology, {});
  constexpr std::int64_t kBytes = 4096 * 1000;
  network.start(0, kBytes, line.links, 250e6, 1);
  network.start(0, 3 * kBytes, line.links, 0, 2);
  const Ends ends = run(network);
  // A quarter and three quarters of the link, so both end together, up to a packet.
  const auto expected = static_cast<double>(4 * time_of(kBytes, rate));
  CHECK(static_cast<double>(ends.delivered.at(1)) == Approx(expected).epsilon(0.002));
  CHECK(static_cast<double>(ends.delivered.at(2)) == Approx(expected).epsilon(0.002));
}

TEST_CASE("senders on one link take turns packet by packet") {
  const std::size_t flows = GENERATE(2U, 3U, 8U);
  const Bandwidth rate(1'000'000'000);
  const Line line = make_line({rate}, Duration());
  PacketNetwork network(line.topology, {});
  for (FlowTag f = 0; f < flows; ++f) {
    network.start(0, 100 * 4096, line.links, 0, f);
  }
  const Ends ends = run(network);
  for (FlowTag f = 0; f < flows; ++f) {
    // The last round of turns, in order.
    CHECK(ends.delivered.at(f) == static_cast<Time>(99 * flows + f + 1) * time_of(4096, rate));
  }
}

TEST_CASE("long flows from different hosts share a link fairly") {
  const std::size_t flows = GENERATE(2U, 4U, 8U);
  const Bandwidth rate(12'500'000'000);
  const Star star = make_star(flows, rate, 690_ns);
  PacketNetwork network(star.topology, {});
  constexpr std::int64_t kBytes = 64 << 20;
  for (FlowTag f = 0; f < flows; ++f) {
    network.start(0, kBytes, star.routes[f], 0, f);
  }
  const Ends ends = run(network);
  const auto expected = static_cast<double>(time_of(kBytes, rate)) * static_cast<double>(flows);
  double sum = 0;
  double sum_of_squares = 0;
  for (const auto& [tag, time] : ends.delivered) {
    const double throughput = expected / static_cast<double>(time);
    sum += throughput;
    sum_of_squares += throughput * throughput;
    CHECK(static_cast<double>(time) <= 1.05 * expected);
  }
  // Jain, Chiu and Hawe's index of fairness.
  const double fairness = sum * sum / (static_cast<double>(flows) * sum_of_squares);
  CAPTURE(flows);
  CHECK(fairness > 0.99);
}

TEST_CASE("incast without rate control loses nothing and keeps the link busy: pauses do it") {
  constexpr std::size_t kSenders = 32;
  const Bandwidth rate(12'500'000'000);
  const Star star = make_star(kSenders, rate, 690_ns);
  PacketOptions options;
  options.rate_control = RateControl::kNone;
  PacketNetwork network(star.topology, options);
  constexpr std::int64_t kPackets = 1000;
  for (FlowTag f = 0; f < kSenders; ++f) {
    network.start(0, kPackets * 4096, star.routes[f], 0, f);
  }
  const Ends ends = run(network);
  REQUIRE(ends.delivered.size() == kSenders);
  const Time last =
      std::max_element(ends.delivered.begin(), ends.delivered.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; })
          ->second;
  // Work conservation: the last link starts after one packet and a latency, and never stops.
  const Time packet = time_of(4096, rate);
  CHECK(last == (1 + kPackets * static_cast<Time>(kSenders)) * packet + 2 * 690'000);

  const std::vector<QueueUse> queues = network.queues();
  const auto queue = std::find_if(queues.begin(), queues.end(),
                                  [&](const QueueUse& use) { return use.link == star.last; });
  REQUIRE(queue != queues.end());
  // Each host may fill its threshold and what is on its link when the pause arrives: two latencies
  // and the packets being sent at the first and second moment.
  const double seconds = options.pause_above.seconds() + 2 * 690e-9;
  const auto bound = kSenders * (seconds * 12.5e9 + 3 * 4096);
  CHECK(static_cast<double>(queue->longest.count()) <= bound);
  CHECK(static_cast<double>(queue->longest.count()) > options.pause_above.seconds() * 12.5e9);
  std::uint64_t pauses = 0;
  for (const QueueUse& use : queues) {
    pauses += use.pauses;
  }
  CHECK(pauses >= kSenders);
}

TEST_CASE("rate control keeps the queue of an incast below what pauses alone allow") {
  const Star star = make_star(4, Bandwidth(12'500'000'000), 690_ns);
  const auto pauses_with = [&](RateControl control) {
    PacketOptions options;
    options.rate_control = control;
    PacketNetwork network(star.topology, options);
    for (FlowTag f = 0; f < 4; ++f) {
      network.start(0, 16 << 20, star.routes[f], 0, f);
    }
    run(network);
    std::uint64_t pauses = 0;
    for (const QueueUse& use : network.queues()) {
      pauses += use.pauses;
    }
    return pauses;
  };
  CHECK(pauses_with(RateControl::kDcqcn) < pauses_with(RateControl::kNone) / 4);
}

TEST_CASE("one sender to a slower link keeps it busy, whatever the latency") {
  const Duration latency = GENERATE(100_ns, 1_us, 10_us, 75_us);
  CAPTURE(latency.picoseconds());
  const Line line = make_line({Bandwidth(12'500'000'000), Bandwidth(5'000'000'000)}, latency);
  PacketNetwork network(line.topology, {});
  constexpr std::int64_t kBytes = 256 << 20;
  network.start(0, kBytes, line.links, 0, 1);
  const auto least = static_cast<double>(time_of(kBytes, Bandwidth(5'000'000'000)));
  CHECK(static_cast<double>(run(network).delivered.at(1)) < 1.05 * least);
  const std::vector<QueueUse> queues = network.queues();
  REQUIRE(queues.back().link == line.links.back());
  CHECK(queues.back().marks > 0);
}

TEST_CASE("marks are counted where the queue is, and only there") {
  // The third link queues nothing: packets come to it at the rate of the second.
  const Bandwidth slow(5'000'000'000);
  const Line line = make_line({Bandwidth(12'500'000'000), slow, slow}, 1_us);
  PacketNetwork network(line.topology, {});
  network.start(0, 16 << 20, line.links, 0, 1);
  run(network);
  const std::vector<QueueUse> queues = network.queues();
  REQUIRE(queues.size() == 2);
  CHECK(queues[0].link == line.links[1]);
  CHECK(queues[0].marks > 0);
  CHECK(queues[1].marks == 0);
  CHECK(queues[1].longest <= Bytes(2 * 4096));  // one being sent, one just there
}

TEST_CASE("more than a queue can hold is an error that names the link") {
  const Star star = make_star(32, Bandwidth(12'500'000'000), 690_ns);
  PacketOptions options;
  options.queue_capacity = Bytes(100'000);
  PacketNetwork network(star.topology, options);
  for (FlowTag f = 0; f < 32; ++f) {
    network.start(0, 16 << 20, star.routes[f], 0, f);
  }
  CHECK_THROWS_WITH(run(network), Catch::Contains("the queue of hub→sink holds"));
}

TEST_CASE("pauses that wait for each other in a circle are found and named") {
  // Three switches in a ring, each with a host; every host sends two switches further, so that each
  // link of the ring waits for the next one.
  Topology topology("ring");
  constexpr std::size_t kSwitches = 3;
  std::vector<NodeId> switches;
  for (std::size_t i = 0; i < kSwitches; ++i) {
    switches.push_back(topology.add_node({.name = fmt::format("s{}", i)}));
  }
  std::vector<LinkId> around;
  std::vector<LinkId> up;
  std::vector<LinkId> down;
  for (std::size_t i = 0; i < kSwitches; ++i) {
    const NodeId host = topology.add_node({.name = fmt::format("h{}", i)});
    const Bandwidth rate(1'000'000'000);
    up.push_back(topology.add_duplex_link(
        {.from = host, .to = switches[i], .bandwidth = rate, .latency = 1_us}));
    down.emplace_back(up.back().value() + 1);
    around.push_back(topology.add_link({.from = switches[i],
                                        .to = switches[(i + 1) % kSwitches],
                                        .bandwidth = rate,
                                        .latency = 1_us}));
  }
  std::vector<std::vector<LinkId>> routes;
  for (std::size_t i = 0; i < kSwitches; ++i) {
    routes.push_back({up[i], around[i], around[(i + 1) % kSwitches], down[(i + 2) % kSwitches]});
  }
  PacketOptions options;
  options.rate_control = RateControl::kNone;
  PacketNetwork network(topology, options);
  for (FlowTag f = 0; f < kSwitches; ++f) {
    network.start(0, 64 << 20, routes[f], 0, f);
  }
  CHECK_THROWS_AS(run(network), SimulationError);
  CHECK_THROWS_WITH(network.next_event(0),
                    Catch::Contains("s0→s1 is paused by s1, whose buffer for it waits for s1→s2") &&
                        Catch::EndsWith("waits for s0→s1"));
}

TEST_CASE("random flows: everything arrives, no link is faster than it is, and twice is the same") {
  const unsigned seed = GENERATE(range(1U, 21U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::size_t hosts = 3 + random() % 8;
  Topology topology("star");
  const NodeId hub = topology.add_node({.name = "hub"});
  std::vector<LinkId> up;
  std::vector<std::int64_t> rates;
  for (std::size_t i = 0; i < hosts; ++i) {
    rates.push_back(1'000'000'000 * (1 + static_cast<std::int64_t>(random() % 12)));
    up.push_back(
        topology.add_duplex_link({.from = topology.add_node({.name = fmt::format("h{}", i)}),
                                  .to = hub,
                                  .bandwidth = Bandwidth(rates.back()),
                                  .latency = Duration(static_cast<Time>(random() % 5'000'000))}));
  }
  struct Flow {
    std::vector<LinkId> route;
    std::int64_t bytes;
    Time start;
  };
  std::vector<Flow> flows;
  std::vector<std::int64_t> into(hosts);
  std::vector<std::int64_t> out_of(hosts);
  Time at = 0;
  for (std::size_t f = 0; f < 40; ++f) {
    const std::size_t from = random() % hosts;
    const std::size_t to = (from + 1 + random() % (hosts - 1)) % hosts;
    const auto bytes = static_cast<std::int64_t>(1 + random() % 500'000);
    flows.push_back({{up[from], LinkId(up[to].value() + 1)}, bytes, at});
    at += static_cast<Time>(random() % 20'000'000);
    out_of[from] += bytes;
    into[to] += bytes;
  }
  PacketOptions options;
  options.overload = GENERATE(Overload::kPause, Overload::kTrim);
  const auto run_all = [&] {
    PacketNetwork network(topology, options);
    std::vector<std::pair<Time, FlowEvent>> log;
    std::vector<FlowEvent> events;
    Time now = 0;
    std::size_t next = 0;
    while (true) {
      const Time moves = network.next_event(now);
      if (next < flows.size() && (moves < 0 || flows[next].start < moves)) {
        now = flows[next].start;
        network.start(now, flows[next].bytes, flows[next].route, 0, static_cast<FlowTag>(next));
        ++next;
        continue;
      }
      if (moves < 0) {
        return log;
      }
      now = moves;
      events.clear();
      network.take_events(now, events);
      for (const FlowEvent& event : events) {
        log.emplace_back(now, event);
      }
    }
  };
  const auto log = run_all();
  REQUIRE(log.size() == 2 * flows.size());
  for (const auto& [time, event] : log) {
    // Nothing is quicker than its own bytes over its narrowest link and the latencies.
    const Flow& flow = flows[event.tag];
    if (event.is_delivered) {
      const topology::Link& first = topology.link(flow.route[0]);
      const topology::Link& second = topology.link(flow.route[1]);
      const Time least = time_of(flow.bytes, std::min(first.bandwidth, second.bandwidth)) +
                         first.latency.picoseconds() + second.latency.picoseconds();
      CHECK(time - flow.start >= least);
    }
  }
  for (std::size_t h = 0; h < hosts; ++h) {
    CHECK(log.back().first >= time_of(std::max(into[h], out_of[h]), Bandwidth(rates[h])));
  }
  CHECK(run_all() == log);
}

PacketOptions trimming() {
  PacketOptions options;
  options.overload = Overload::kTrim;
  return options;
}

TEST_CASE("trimming: a flow alone takes as long as with pauses, and nothing is trimmed") {
  const Bandwidth rate(12'500'000'000);
  const std::int64_t bytes = GENERATE(100, 4096, 1'000'000, 10'000'001);
  CAPTURE(bytes);
  const Line line = make_line({rate, rate, rate}, 500_ns);
  const auto end = [&](const PacketOptions& options) {
    PacketNetwork network(line.topology, options);
    network.start(0, bytes, line.links, 0, 1);
    const Ends ends = run(network);
    for (const QueueUse& use : network.queues()) {
      CHECK(use.trims == 0);
    }
    return ends.delivered.at(1);
  };
  CHECK(end(trimming()) == end({}));
}

TEST_CASE("trimming: an incast keeps short queues and the link busy, and all bytes arrive") {
  const std::size_t senders = GENERATE(2U, 8U, 32U);
  CAPTURE(senders);
  const Bandwidth rate(12'500'000'000);
  const Star star = make_star(senders, rate, 690_ns);
  const PacketOptions options = trimming();
  PacketNetwork network(star.topology, options);
  constexpr std::int64_t kBytes = 4'000'001;  // the last packet is a short one
  for (FlowTag f = 0; f < senders; ++f) {
    network.start(0, kBytes, star.routes[f], 0, f);
  }
  const Ends ends = run(network);
  REQUIRE(ends.delivered.size() == senders);
  Time last = 0;
  for (const auto& [tag, time] : ends.delivered) {
    last = std::max(last, time);
  }
  const Time least = time_of(kBytes * static_cast<std::int64_t>(senders), rate);
  CHECK(last >= least);
  CHECK(static_cast<double>(last) < 1.05 * static_cast<double>(least));
  for (const QueueUse& use : network.queues()) {
    CHECK(use.longest <= Bytes(options.trim.queue_packets * 4096));
    CHECK(use.pauses == 0);
    CHECK((use.trims > 0) == (use.link == star.last));
  }
}

TEST_CASE("options out of range are refused") {
  const Line line = make_line({Bandwidth(1'000'000'000)}, 1_us);
  PacketOptions options;
  SECTION("round trip") { options.round_trip = Duration(); }
  SECTION("trim") { options.trim.window = 0; }
  SECTION("payload") { options.payload = Bytes(0); }
  SECTION("header") { options.header = Bytes(-1); }
  SECTION("marks") { options.mark_all = options.mark_from; }
  SECTION("pauses") { options.pause_above = Duration(); }
  SECTION("probability") { options.mark_probability = 1.5; }
  SECTION("gain") { options.dcqcn.gain = 0; }
  SECTION("interval") { options.dcqcn.increase_interval = Duration(); }
  SECTION("least rate") { options.dcqcn.least_rate = 0; }
  SECTION("increase") { options.dcqcn.additive_increase = 0; }
  CHECK_THROWS_AS(PacketNetwork(line.topology, options), ConfigError);
}

}  // namespace
}  // namespace rackrail::sim::packet_network_test
