#include "sim/routing.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/random.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::sim::routing_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr Duration kFarLatency = 4_us;          // between racks of test::clos
constexpr std::int64_t kElements = 25'000'000;  // 100 MB: 10 ms at 10 GB/s

SimulationOptions with(Multipath multipath) {
  SimulationOptions options;
  options.multipath = multipath;
  return options;
}

/// Each rank sends all its elements to another one; copies only, so the time is the network's.
plan::TransferGraph permutation(const std::vector<std::size_t>& target) {
  plan::TransferGraph graph("permutation", plan::Collective::kAllReduce, target.size(), {1});
  for (std::size_t r = 0; r < target.size(); ++r) {
    if (target[r] != r) {
      graph.add_transfer({.src = Rank(r), .dst = Rank(target[r])}, {});
    }
  }
  return graph;
}

Duration time_of(const plan::TransferGraph& graph, const Topology& topology, Multipath multipath) {
  return simulate_collective(graph, kElements, kElements, topology, with(multipath)).time;
}

TEST_CASE("sprayed permutations run at host rate where hashed ones collide") {
  // 4 racks of 4 hosts with 10 GB/s under 4 spines: as much up as down.
  const Topology topology = test::clos({4, 4, 4, 4}, 4);
  constexpr std::size_t kHosts = 16;
  Duration worst;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<std::size_t> target(kHosts);
    for (std::size_t i = 0; i < kHosts; ++i) {
      target[i] = i;
    }
    for (std::size_t i = kHosts - 1; i > 0; --i) {
      std::swap(target[i], target[random_bits(seed, i) % (i + 1)]);
    }
    CAPTURE(seed, target);
    const plan::TransferGraph graph = permutation(target);
    const Duration sprayed = time_of(graph, topology, Multipath::kSpray);
    CHECK(std::abs((sprayed - 10_ms - kFarLatency).picoseconds()) <= 1);
    worst = std::max(worst, time_of(graph, topology, Multipath::kEcmp));
  }
  // Two on one uplink take twice as long; 20 permutations without such a pair are out of question.
  CHECK(worst >= 20_ms);
}

TEST_CASE("another seed is another hash, but not for what the planner expects") {
  const Topology topology = test::clos({4, 4, 4, 4}, 4);
  std::vector<std::size_t> target(16);
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = (i + 4) % target.size();
  }
  const plan::TransferGraph graph = permutation(target);
  const auto times = [&](Multipath multipath) {
    std::set<Duration> all;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SimulationOptions options = with(multipath);
      options.disturbances.seed = seed;
      all.insert(simulate_collective(graph, kElements, kElements, topology, options).time);
    }
    return all;
  };
  CHECK(times(Multipath::kPinned).size() == 1);
  CHECK(times(Multipath::kEcmp).size() > 1);
  CHECK(times(Multipath::kEcmp).contains(time_of(graph, topology, Multipath::kPinned)));
}

/// Hosts of 100 GB/s on either side of so many ways of 10 GB/s.
Topology with_ways(int ways) {
  Topology topology("ways");
  const NodeId left = topology.add_node({.name = "left", .kind = NodeKind::kTor});
  const NodeId right = topology.add_node({.name = "right", .kind = NodeKind::kTor});
  for (const auto& [name, tor] : {std::pair("a", left), std::pair("b", right)}) {
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = tor, .bandwidth = Bandwidth(100'000'000'000)});
  }
  for (int i = 0; i < ways; ++i) {
    const NodeId spine =
        topology.add_node({.name = fmt::format("spine{}", i), .kind = NodeKind::kSpine});
    for (const NodeId tor : {left, right}) {
      topology.add_duplex_link({.from = tor, .to = spine, .bandwidth = Bandwidth(10'000'000'000)});
    }
  }
  return topology;
}

TEST_CASE("one sprayed message is as fast as the largest flow where paths are symmetric") {
  // The ends are not the bottleneck: 100 GB/s into 2 to 6 ways of 10 GB/s each.
  const int ways = GENERATE(1, 2, 3, 6);
  const Topology topology = with_ways(ways);
  const auto most =
      topology::max_flow(topology, topology.node_of(Rank(0)), topology.node_of(Rank(1))).value;
  const Duration sprayed = time_of(permutation({1, 1}), topology, Multipath::kSpray);
  CHECK(sprayed.seconds() ==
        Approx(4.0 * kElements / static_cast<double>(most.bytes_per_second())).epsilon(1e-9));
  CHECK(time_of(permutation({1, 1}), topology, Multipath::kEcmp) == 10_ms);
}

/// Two racks of two hosts under two spines, with 4 us from rack to rack. One cable, between the
/// first rack and the second spine, is `longer` than the others.
Topology with_longer_cable(Duration longer) {
  Topology topology = test::clos({2, 2}, 2);
  const NodeId tor = topology.find_node("rack0-tor").value();
  const NodeId spine = topology.find_node("spine1").value();
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link link = topology.link(LinkId(i));
    if ((link.from == tor && link.to == spine) || (link.from == spine && link.to == tor)) {
      topology.set_link_rate(LinkId(i), link.bandwidth, link.latency + longer);
    }
  }
  return topology;
}

TEST_CASE("switches use a longer cable like a shorter one") {
  const Duration longer = GENERATE(10_ns, 30_us);  // 2 m of cable, 6 km
  const Topology topology = with_longer_cable(longer);
  const auto time = [&](const std::vector<std::size_t>& target, Multipath multipath,
                        std::uint64_t seed = 0) {
    SimulationOptions options = with(multipath);
    options.disturbances.seed = seed;
    return simulate_collective(permutation(target), kElements, kElements, topology, options).time;
  };
  SECTION("sprayed, both hosts of a rack have their full rate, and the last byte comes over it") {
    CHECK(time({2, 1, 2, 3}, Multipath::kSpray) == 10_ms + kFarLatency + longer);
    CHECK(time({2, 3, 2, 3}, Multipath::kSpray) == 10_ms + kFarLatency + longer);
    CHECK(time({0, 1, 0, 1}, Multipath::kSpray) == 10_ms + kFarLatency + longer);
  }
  SECTION("hashed, some flows are on it, and none shares a cable where they differ") {
    std::set<Duration> one;
    std::set<Duration> two;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      one.insert(time({2, 1, 2, 3}, Multipath::kEcmp, seed));
      two.insert(time({2, 3, 2, 3}, Multipath::kEcmp, seed));
    }
    CHECK(one == std::set{10_ms + kFarLatency, 10_ms + kFarLatency + longer});
    CHECK(two == std::set{10_ms + kFarLatency + longer, 20_ms + kFarLatency,
                          20_ms + kFarLatency + longer});
  }
  SECTION("a plan that leaves routes open takes those of least latency") {
    CHECK(time({2, 1, 2, 3}, Multipath::kPinned) == 10_ms + kFarLatency);
    CHECK(time({2, 3, 2, 3}, Multipath::kPinned) == 20_ms + kFarLatency);
  }
}

TEST_CASE("packets are dealt out over a longer cable too") {
  const Topology topology = with_longer_cable(10_ns);
  constexpr std::int64_t kPackets = 1000;
  constexpr std::int64_t kPacket = 4000;  // 400 ns at 10 GB/s
  const auto time = [&](const std::vector<std::size_t>& target, Multipath multipath,
                        std::uint64_t seed = 0) {
    SimulationOptions options = with(multipath);
    options.disturbances.seed = seed;
    options.network = NetworkLevel::kPacket;
    options.packets.payload = Bytes(kPacket);
    constexpr std::int64_t kFloats = kPackets * kPacket / 4;
    return simulate_collective(permutation(target), kFloats, kFloats, topology, options).time;
  };
  // 1,000 packets over the first link, the last of them over three more. Those that come over the
  // longer cable are 10 ns late, and the next of the others waits for them at the last link.
  const Duration shortest = 401'200_ns + kFarLatency;
  CHECK(time({2, 1, 2, 3}, Multipath::kSpray) == shortest + 10_ns);
  // Of two hosts, each has its full rate, but for a queue of a few packets.
  const Duration two = time({2, 3, 2, 3}, Multipath::kSpray);
  CHECK(two >= shortest + 10_ns);
  CHECK(two <= shortest + 5_us);
  std::set<Duration> hashed;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    hashed.insert(time({2, 1, 2, 3}, Multipath::kEcmp, seed));
  }
  CHECK(hashed == std::set{shortest, shortest + 10_ns});
}

TEST_CASE("messages of others take the routes that switches choose") {
  // Eight streams from rack to rack, which hashes lay on both spines, or on the shorter one.
  const Topology topology = with_longer_cable(10_ns);
  const auto others = [&](Multipath multipath) {
    SimulationOptions options = with(multipath);
    options.record_flows = true;
    for (const auto& [src, dst] :
         {std::pair(0, 2), std::pair(0, 3), std::pair(1, 2), std::pair(1, 3), std::pair(2, 0),
          std::pair(3, 0), std::pair(2, 1), std::pair(3, 1)}) {
      options.disturbances.background.push_back(
          {.src = Rank(src), .dst = Rank(dst), .message = Bytes(1'000'000)});
    }
    std::set<std::string> spines;
    const auto result =
        simulate_collective(permutation({1, 0, 3, 2}), kElements, kElements, topology, options);
    for (const LinkUse& use : result.links) {
      const topology::Node& to = topology.node(topology.link(use.link).to);
      if (to.kind == NodeKind::kSpine && use.background > Bytes(0)) spines.insert(to.name);
    }
    return spines.size();
  };
  CHECK(others(Multipath::kPinned) == 1);
  CHECK(others(Multipath::kEcmp) == 2);
}

TEST_CASE("connections have a hash each, and the one on the fullest way is the last") {
  const Topology topology = with_ways(4);
  const auto time = [&](int connections, std::uint64_t seed,
                        NetworkLevel level = NetworkLevel::kFlow) {
    SimulationOptions options = with(Multipath::kEcmp);
    options.connections = connections;
    options.disturbances.seed = seed;
    options.network = level;
    return simulate_collective(permutation({1, 1}), kElements, kElements, topology, options).time;
  };
  // Of two, a quarter of all pairs go the same way.
  int together = 0;
  constexpr int kSeeds = 64;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    CHECK(time(1, seed) == 10_ms);
    const Duration two = time(2, seed);
    CHECK((two == 10_ms || two == 5_ms));
    together += two == 10_ms ? 1 : 0;
    // A way takes a quarter of many on average, so at least one that much; and hardly ever half.
    const Duration many = time(64, seed);
    CHECK(many >= Duration(2'500'000'000));
    CHECK(many < 5_ms);
  }
  CHECK(together > kSeeds / 16);
  CHECK(together < kSeeds / 2);
  CHECK(time(8, 1, NetworkLevel::kPacket).seconds() == Approx(time(8, 1).seconds()).epsilon(0.05));
}

TEST_CASE("a message may take of a link what all its connections may") {
  Topology limited("limited");
  const NodeId tor = limited.add_node({.name = "tor", .kind = NodeKind::kTor});
  for (const char* name : {"a", "b"}) {
    const NodeId host = limited.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    limited.add_rank(host);
    limited.add_duplex_link(
        {.from = host, .to = tor, .bandwidth = 10_GBps, .flow_bandwidth = 2_GBps});
  }
  SimulationOptions options = with(Multipath::kEcmp);
  const auto time = [&](int connections) {
    options.connections = connections;
    return simulate_collective(permutation({1, 1}), kElements, kElements, limited, options).time;
  };
  CHECK(time(1) == 50_ms);
  CHECK(time(2) == 25_ms);
  CHECK(time(8) == 10_ms);
}

/// A whole message leaves the source, arrives at the destination, and passes every other vertex.
void check_adds_up(const RouteUse& use, const Topology& topology, Rank src, Rank dst) {
  std::map<NodeId, double> out;
  for (std::size_t i = 0; i < use.links.size(); ++i) {
    const topology::Link& link = topology.link(use.links[i]);
    out[link.from] += share_of(use, i);
    out[link.to] -= share_of(use, i);
  }
  for (const auto& [node, surplus] : out) {
    const bool is_src = node == topology.node_of(src);
    const bool is_dst = node == topology.node_of(dst);
    CHECK(surplus == Approx(is_src ? 1 : is_dst ? -1 : 0).margin(1e-12));
  }
}

TEST_CASE("what several ways of a message put on links adds up at every vertex") {
  const Topology topology = test::clos({3, 2, 4}, 5);
  Routing routing(topology, Multipath::kEcmp, 7, 16);
  for (const auto& [src, dst] : {std::pair(0, 8), std::pair(3, 1), std::pair(5, 6)}) {
    CAPTURE(src, dst);
    const RouteUse use = routing.route(Rank(src), Rank(dst));
    check_adds_up(use, topology, Rank(src), Rank(dst));
  }
}

TEST_CASE("what a sprayed message puts on links adds up at every vertex") {
  const Topology topology = test::clos({3, 2, 4}, 5);
  Routing routing(topology, Multipath::kSpray);
  for (const auto& [src, dst] : {std::pair(0, 8), std::pair(3, 1), std::pair(5, 6)}) {
    CAPTURE(src, dst);
    const RouteUse use = routing.route(Rank(src), Rank(dst));
    check_adds_up(use, topology, Rank(src), Rank(dst));
    CHECK(use.links.size() == (src == 5 ? 2 : 2 + 2 * 5));  // within a rack there is one way
  }
}

TEST_CASE("a sprayed and a local message share a host's link evenly") {
  // Ranks 0 and 1 are in one rack, 2 in the other; both send to rank 0 at 10 GB/s.
  const Topology topology = test::clos({2, 1}, 3);
  plan::TransferGraph graph("incast", plan::Collective::kAllReduce, 3, {1});
  graph.add_transfer({.src = Rank(1), .dst = Rank(0)}, {});
  graph.add_transfer({.src = Rank(2), .dst = Rank(0)}, {});
  CHECK(time_of(graph, topology, Multipath::kSpray).picoseconds() ==
        Approx((20_ms + kFarLatency).picoseconds()).margin(1));
  // Were it three flows, it would have three quarters of the link and leave at 13.3 ms.
  SimulationOptions options = with(Multipath::kSpray);
  const auto result = simulate_collective(graph, kElements, kElements, topology, options);
  for (const LinkUse& use : result.links) {
    if (topology.link(use.link).kind == topology::LinkKind::kUplink) {
      CHECK(std::abs(use.bytes.count() - 100'000'000 / 3) <= 1);
    }
  }
}

TEST_CASE("pinned routes are heeded, or not, as asked") {
  const Topology topology = test::clos({1, 1}, 2);
  Routing pinned(topology, Multipath::kPinned);
  Routing ecmp(topology, Multipath::kEcmp);
  const std::vector<LinkId> hashed = ecmp.route(Rank(0), Rank(1)).links;
  std::vector<LinkId> other;
  for (const LinkId link : Routing(topology, Multipath::kSpray).route(Rank(0), Rank(1)).links) {
    if (std::find(hashed.begin() + 1, hashed.end() - 1, link) == hashed.end() - 1) {
      other.push_back(link);
    }
  }
  REQUIRE(other.size() == 4);  // the other spine's two links, with the hosts' on either side
  CHECK(pinned.route(Rank(0), Rank(1), other).links == other);
  CHECK(ecmp.route(Rank(0), Rank(1), other).links == hashed);
  CHECK(pinned.route(Rank(0), Rank(1)).links == hashed);
}

TEST_CASE("where the network chooses, routes of a plan make no difference") {
  const Topology topology = test::hosts_with_nics(3, {25, 25});
  const auto time_of = [&](Multipath multipath, bool has_routes) {
    plan::TransferGraph graph("messages", plan::Collective::kAllReduce, 3,
                              std::vector<std::uint32_t>(24, 1));
    std::vector<TransferId> before;
    for (std::uint32_t i = 0; i < 24; ++i) {
      const std::uint32_t src = i % 3;
      const std::uint32_t dst = (src + 1) % 3;
      // Links of host h: to and from one switch, then the other.
      const RouteId route =
          graph.add_route({LinkId(4 * src + 2 * (i % 2)), LinkId(4 * dst + 2 * (i % 2) + 1)});
      const std::size_t waits = i % 4 == 2 ? 1 : 0;
      before.push_back(
          graph.add_transfer({.src = Rank(src),
                              .dst = Rank(dst),
                              .chunk_begin = i,
                              .route = has_routes ? route : RouteId(0)},
                             {before.data() + (i < 3 ? 0 : i - 3), i < 3 ? 0 : waits}));
    }
    SimulationOptions options;
    options.multipath = multipath;
    return simulate_collective(graph, 2'400'000, 30'000, topology, options).time;
  };
  CHECK(time_of(Multipath::kEcmp, true) == time_of(Multipath::kEcmp, false));
  CHECK(time_of(Multipath::kSpray, true) == time_of(Multipath::kSpray, false));
  CHECK(time_of(Multipath::kPinned, true) < time_of(Multipath::kPinned, false));
}

TEST_CASE("packets that switches deal out run near host rate too, where hashed ones collide") {
  const Topology topology = test::clos({4, 4, 4, 4}, 4);
  constexpr std::int64_t kBytes = 10'000'000;  // 1 ms
  // Each rack's hosts send to another rack, in one of the 4! orders that a hash does not suit.
  std::vector<std::size_t> target;
  for (std::size_t host = 0; host < 16; ++host) {
    target.push_back((host + 5) % 16);
  }
  const auto time = [&](Multipath multipath, NetworkLevel level) {
    SimulationOptions options = with(multipath);
    options.network = level;
    return simulate_collective(permutation(target), kBytes / 4, kBytes / 4, topology, options).time;
  };
  const Duration fluid = time(Multipath::kSpray, NetworkLevel::kFlow);
  const Duration packets = time(Multipath::kSpray, NetworkLevel::kPacket);
  CAPTURE(fluid, packets);
  CHECK(packets > fluid);
  CHECK(packets.seconds() < 1.05 * fluid.seconds());
  CHECK(time(Multipath::kEcmp, NetworkLevel::kPacket).seconds() > 1.8 * fluid.seconds());
}

TEST_CASE("names of multipath") {
  CHECK(parse_multipath("spray") == Multipath::kSpray);
  CHECK(parse_multipath("ecmp") == Multipath::kEcmp);
  CHECK(parse_multipath("pinned") == Multipath::kPinned);
  CHECK_FALSE(parse_multipath("both").has_value());
}

// Two hosts with a link of 1 GB/s each way that takes `cpu_share` of the cores at full rate; each
// has one core of 10 GB/s.
Topology two_hosts(double cpu_share) {
  Topology topology("two hosts");
  std::vector<NodeId> hosts;
  for (const char* name : {"a", "b"}) {
    hosts.push_back(topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name}));
    topology.add_rank(hosts.back());
    const NodeId in = topology.add_node({.name = std::string(name) + "-in"});
    const NodeId out = topology.add_node({.name = std::string(name) + "-out"});
    topology.set_processor(topology.rank_of(hosts.back()).value(),
                           topology.add_link({.from = in,
                                              .to = out,
                                              .bandwidth = Bandwidth(10'000'000'000),
                                              .kind = topology::LinkKind::kShared,
                                              .cpu_share = 1}));
  }
  topology.add_duplex_link({.from = hosts[0],
                            .to = hosts[1],
                            .bandwidth = Bandwidth(1'000'000'000),
                            .latency = 2_us,
                            .cpu_share = cpu_share});
  return topology;
}

TEST_CASE("a transport that costs cores slows what computes on them") {
  const double cpu_share = GENERATE(0.0, 0.1, 0.35, 0.45);
  const bool both_ways = GENERATE(false, true);
  CAPTURE(cpu_share, both_ways);
  const Topology topology = two_hosts(cpu_share);
  plan::Workload workload;
  workload.name = "two layers";
  workload.tensors = {{"last", 2'000'000, 10_ms}, {"first", 1, 20_ms}};
  workload.fixed_share = 0;
  plan::Plan plan;
  plan.rank_names = {"a", "b"};
  plan.workload_digest = workload.digest();
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 2, {1});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1)}, {});
  if (both_ways) {
    graph.add_transfer({.src = Rank(1), .dst = Rank(0)}, {});
  }
  plan.schedules = {graph};
  plan.buckets = {{.tensors = {0}, .elements = 2'000'000, .slice_elements = 2'000'000}};
  plan.batch.local_batch = {1, 1};
  SimulationOptions options;
  const StepResult result = simulate_step(plan, workload, topology, options);
  // 8 MB take 8 ms of the 20 ms that are computed meanwhile. In these the core has 1 − s of itself
  // for the work, where s counts for each direction; so the step is 8 ms · s longer.
  const double taken = cpu_share * (both_ways ? 2 : 1);
  CHECK(result.estimate.step_time.seconds() == Approx(30e-3 + 8e-3 * taken).epsilon(1e-9));
}

TEST_CASE("cores that cannot keep up slow the transport") {
  Topology topology("slow core");
  const NodeId a = topology.add_node({.name = "a", .kind = NodeKind::kHost, .host = "a"});
  const NodeId b = topology.add_node({.name = "b", .kind = NodeKind::kHost, .host = "b"});
  const NodeId in = topology.add_node({.name = "in"});
  const NodeId out = topology.add_node({.name = "out"});
  topology.add_rank(a);
  topology.add_rank(b);
  // Both ranks on one processor: 0.8 for the sender and 0.8 for the receiver are 1.6 of it.
  const LinkId cores = topology.add_link({.from = in,
                                          .to = out,
                                          .bandwidth = Bandwidth(1'000'000'000),
                                          .kind = topology::LinkKind::kShared,
                                          .cpu_share = 1});
  topology.set_processor(Rank(0), cores);
  topology.set_processor(Rank(1), cores);
  topology.add_duplex_link(
      {.from = a, .to = b, .bandwidth = Bandwidth(10'000'000'000), .cpu_share = 0.8});
  CHECK(time_of(permutation({1, 1}), topology, Multipath::kPinned).seconds() ==
        Approx(1.6 * 10e-3).epsilon(1e-9));
  // A rank without a processor has no cores to charge.
  Topology free = two_hosts(0);
  CHECK(Routing(free, Multipath::kPinned).route(Rank(0), Rank(1)).shares.empty());
}

}  // namespace
}  // namespace rackrail::sim::routing_test
