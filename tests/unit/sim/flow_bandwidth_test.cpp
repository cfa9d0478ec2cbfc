// Links of which one message takes no more than a part: closed forms.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "plan/send_pace.hpp"
#include "sim/simulator.hpp"
#include "tests/unit/sim/pair_job.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::sim::flow_bandwidth_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr std::int64_t kElements = 1'000'000;  // 4 MB: 0.4 ms at 10 GB/s, 1.6 ms at 2.5 GB/s

/// `pairs` hosts on either side of a cable of 10 GB/s, of which a message takes 2.5 GB/s; host i
/// sends to host pairs + i.
Topology dumbbell(std::size_t pairs) {
  Topology topology("dumbbell");
  const NodeId left = topology.add_node({.name = "left", .kind = NodeKind::kTor});
  const NodeId right = topology.add_node({.name = "right", .kind = NodeKind::kTor});
  for (std::size_t i = 0; i < 2 * pairs; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = i < pairs ? left : right, .bandwidth = 10_GBps});
  }
  topology.add_duplex_link({.from = left,
                            .to = right,
                            .bandwidth = 10_GBps,
                            .flow_bandwidth = Bandwidth(2'500'000'000)});
  return topology;
}

double milliseconds(std::size_t pairs, const SimulationOptions& options) {
  plan::TransferGraph graph("pairs", plan::Collective::kAllReduce, 2 * pairs, {1});
  for (std::size_t i = 0; i < pairs; ++i) {
    graph.add_transfer({.src = Rank(i), .dst = Rank(pairs + i)}, {});
  }
  const Topology topology = dumbbell(pairs);
  return simulate_collective(graph, kElements, kElements, topology, options).time.seconds() * 1e3;
}

TEST_CASE("one message takes its part of a link, several fill it") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  const Multipath multipath = GENERATE(Multipath::kPinned, Multipath::kSpray);
  CAPTURE(network, multipath);
  const SimulationOptions options{.network = network, .multipath = multipath};
  const double slack = network == NetworkLevel::kFlow ? 1e-6 : 0.02;
  CHECK(milliseconds(1, options) == Approx(1.6).epsilon(slack));
  CHECK(milliseconds(2, options) == Approx(1.6).epsilon(slack));
  CHECK(milliseconds(4, options) == Approx(1.6).epsilon(slack));
  CHECK(milliseconds(8, options) == Approx(3.2).epsilon(slack));
}

TEST_CASE("a route's rate limits each transfer over it, whatever the links have") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  Topology topology("line");
  const NodeId left = topology.add_node({.name = "left", .kind = NodeKind::kHost, .host = "left"});
  const NodeId right =
      topology.add_node({.name = "right", .kind = NodeKind::kHost, .host = "right"});
  topology.add_rank(left);
  topology.add_rank(right);
  topology.add_duplex_link({.from = left, .to = right, .bandwidth = 10_GBps});
  // 4 MB there: 0.4 ms at the link's rate. Two halves over one route take turns.
  const auto milliseconds = [&](Bandwidth rate) {
    plan::TransferGraph graph("halves", plan::Collective::kAllReduce, 2, {1, 1});
    const RouteId route = graph.add_route({LinkId(0)}, rate);
    for (const std::uint32_t half : {0U, 1U}) {
      graph.add_transfer({.src = Rank(0), .dst = Rank(1), .chunk_begin = half, .route = route}, {});
    }
    return simulate_collective(graph, kElements, kElements, topology, {.network = network})
               .time.seconds() *
           1e3;
  };
  const double slack = network == NetworkLevel::kFlow ? 1e-6 : 0.02;
  CHECK(milliseconds({}) == Approx(0.4).epsilon(slack));
  CHECK(milliseconds(20_GBps) == Approx(0.4).epsilon(slack));
  CHECK(milliseconds(5_GBps) == Approx(0.8).epsilon(slack));
  CHECK(milliseconds(1_GBps) == Approx(4).epsilon(slack));
}

TEST_CASE("a thread lets slices go in their time, each as fast as the link takes it") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  Topology topology = dumbbell(1);
  const NodeId in = topology.add_node({.name = "cores-in"});
  const NodeId out = topology.add_node({.name = "cores-out"});
  const LinkId cores = topology.add_link({.from = in, .to = out, .bandwidth = 1_GBps});
  topology.set_processor(Rank(0), cores);
  topology::Router router(topology);
  // In slices of 0.5 MB, 0.2 ms on the cable.
  const auto send = [&](std::int64_t slices, Bandwidth rate) {
    plan::TransferGraph graph("slices", plan::Collective::kAllReduce, 2, {1});
    const RouteId route = graph.add_route(router.route(Rank(0), Rank(1)), rate);
    graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = route}, {});
    SimulationOptions options;
    options.network = network;
    options.record_timeline = true;
    return simulate_collective(graph, slices * 125'000, 125'000, topology, options);
  };
  const auto milliseconds = [&](std::int64_t slices, Bandwidth rate) {
    return send(slices, rate).time.seconds() * 1e3;
  };
  const double slack = network == NetworkLevel::kFlow ? 1e-6 : 0.02;
  CHECK(milliseconds(8, {}) == Approx(1.6).epsilon(slack));
  CHECK(milliseconds(8, 5_GBps) == Approx(1.6).epsilon(slack));
  // At 1 GB/s a slice takes 0.5 ms, and the 4 ms of eight may be made up for: the first leaves as
  // if its turn had been at -4 ms, so slice k may at 0.5 ms · k - 4 ms, and the first 14 do as the
  // cable takes them.
  static_assert(plan::kSlicesToCatchUp == 8 && plan::kCatchUp > 4_ms);
  CHECK(milliseconds(10, 1_GBps) == Approx(2.0).epsilon(slack));
  CHECK(milliseconds(14, 1_GBps) == Approx(2.8).epsilon(slack));
  CHECK(milliseconds(15, 1_GBps) == Approx(3.2).epsilon(slack));
  const CollectiveResult paced = send(15, 1_GBps);
  const std::vector<PathPiece>& path = paced.records.critical_path;
  REQUIRE_FALSE(path.empty());
  CHECK(std::ranges::any_of(
      path, [](const PathPiece& piece) { return piece.kind == "held to its rate"; }));
  for (std::size_t i = 1; i < path.size(); ++i) {
    CHECK(path[i].start == path[i - 1].end);
  }
  // What leaves in a long time is as much as the rate says.
  CHECK(milliseconds(215, 1_GBps) - milliseconds(15, 1_GBps) == Approx(100).epsilon(slack));
}

TEST_CASE("a bucket without rates goes while slices of another wait for theirs") {
  constexpr std::int64_t kSlice = 125'000;  // 0.5 MB: 0.5 ms on the link, 2 ms at the rate
  test::Job job(8 * kSlice);
  const NodeId in = job.topology.add_node({.name = "cores-in"});
  const NodeId out = job.topology.add_node({.name = "cores-out"});
  const LinkId cores = job.topology.add_link({.from = in, .to = out, .bandwidth = 1_GBps});
  job.topology.set_processor(Rank(0), cores);
  const auto exchange = [](Bandwidth rate) {
    plan::TransferGraph graph("exchange", plan::Collective::kAllReduce, 2, {1});
    const RouteId forth = graph.add_route({test::kForth}, rate);
    const RouteId back = graph.add_route({LinkId(1)});
    const TransferId sum = graph.add_transfer(
        {.src = Rank(0), .dst = Rank(1), .op = plan::TransferOp::kReduce, .route = forth}, {});
    graph.add_transfer({.src = Rank(1), .dst = Rank(0), .route = back}, {&sum, 1});
    return graph;
  };
  job.workload.tensors = {{"held", 8 * kSlice, 10_ms}, {"free", 8 * kSlice, 10_ms}};
  job.plan.workload_digest = job.workload.digest();
  job.plan.schedules = {exchange(Bandwidth(250'000'000)), exchange({})};
  job.plan.buckets = {
      {.tensors = {0, 1}, .elements = 16 * kSlice, .schedule = 0, .slice_elements = kSlice}};
  const double held_alone = test::mean_step_ms(job.run(test::network_only()));
  job.plan.buckets = {
      {.tensors = {0}, .elements = 8 * kSlice, .schedule = 0, .slice_elements = kSlice},
      {.tensors = {1}, .elements = 8 * kSlice, .schedule = 1, .slice_elements = kSlice}};
  const double both = test::mean_step_ms(job.run(test::network_only()));
  // Half as many slices are held, for 2 ms each; the others' 4 ms pass between them.
  CHECK(both < held_alone - 14);
}

TEST_CASE("what one message gets on a route is known before") {
  const Topology topology = dumbbell(1);
  topology::Router router(topology);
  CHECK(topology::route_bandwidth(topology, router.route(Rank(0), Rank(1))) ==
        Bandwidth(2'500'000'000));
}

TEST_CASE("files say what one message takes") {
  const std::string rows = "gpu0,gpu1,10 GB/s,1 us";
  const auto edges = topology::read_cluster_text(
      "edges.csv", "source,target,bandwidth,latency,flow_bandwidth\n" + rows + ",2500 MB/s\n", {});
  CHECK(edges.topology.link(LinkId(1)).flow_bandwidth == Bandwidth(2'500'000'000));
  const auto without = topology::read_cluster_text(
      "edges.csv", "source,target,bandwidth,latency\n" + rows + "\n", {});
  CHECK(edges.topology.digest() != without.topology.digest());
  const auto flat =
      topology::read_cluster_text("flat.yaml", topology::to_flat_yaml(edges.topology), {});
  CHECK(flat.topology.link(LinkId(0)).flow_bandwidth == Bandwidth(2'500'000'000));
  CHECK(flat.topology.digest() == edges.topology.digest());
  const auto cluster = topology::read_cluster_text(
      "cluster.yaml",
      "name: two\nlink_classes:\n  thin: { link: tcp, flow_bandwidth: 1 GB/s }\n"
      "node_types:\n  worker: { rank: host, nics: { link: thin } }\nracks: { hosts: 2 }\n",
      {});
  topology::Router router(cluster.topology);
  CHECK(topology::route_bandwidth(cluster.topology, router.route(Rank(0), Rank(1))) == 1_GBps);
}

}  // namespace
}  // namespace rackrail::sim::flow_bandwidth_test
