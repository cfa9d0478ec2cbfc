#include "sim/simulator.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/support/free_devices.hpp"

namespace rackrail::sim::simulator_test {
namespace {

using topology::NodeKind;
using topology::Topology;

// n hosts around one switch, `rate` each way, `latency` per link.
Topology star(std::size_t n, Bandwidth rate, Duration latency) {
  Topology topology("star");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  for (std::size_t i = 0; i < n; ++i) {
    const NodeId host = topology.add_node({.name = fmt::format("host{}", i),
                                           .kind = NodeKind::kHost,
                                           .host = fmt::format("host{}", i)});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = hub, .bandwidth = rate, .latency = latency});
  }
  return topology;
}

// Free devices, so that times are the network's alone.
SimulationOptions network_only() {
  SimulationOptions options;
  options.device_rates = test::free_devices();
  return options;
}

plan::TransferGraph one_way(plan::TransferOp op = plan::TransferOp::kReduce) {
  plan::TransferGraph graph("one way", plan::Collective::kAllReduce, 2, {1});
  const RouteId route = graph.add_route({});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1), .op = op, .route = route}, {});
  return graph;
}

plan::TransferGraph ring(std::size_t n) {
  plan::TransferGraph graph("ring", plan::Collective::kAllReduce, n,
                            std::vector<std::uint32_t>(n, 1));
  const RouteId route = graph.add_route({});
  std::vector<TransferId> last(n);
  for (std::size_t step = 0; step < 2 * (n - 1); ++step) {
    for (std::size_t chunk = 0; chunk < n; ++chunk) {
      const auto op = step < n - 1 ? plan::TransferOp::kReduce : plan::TransferOp::kCopy;
      last[chunk] = graph.add_transfer({.src = Rank((chunk + step) % n),
                                        .dst = Rank((chunk + step + 1) % n),
                                        .chunk_begin = static_cast<std::uint32_t>(chunk),
                                        .op = op,
                                        .route = route},
                                       {&last[chunk], step == 0 ? std::size_t{0} : std::size_t{1}});
    }
  }
  return graph;
}

TEST_CASE("one message takes its bytes over the bottleneck plus the latency of the route") {
  const Topology topology = star(2, Bandwidth(1'000'000'000), 5_us);
  // 4000 B at 1 GB/s = 4 us, two links of 5 us; cut-through, so the switch adds no second 4 us. The
  // addition of 4000 B at 1e15 B/s takes 4 ps.
  const auto result = simulate_collective(one_way(), 1000, 1024, topology, network_only());
  CHECK(result.time == 14_us + Duration(4));
  CHECK(result.flows == 1);
  REQUIRE(result.links.size() == 2);
  CHECK(result.links[0].bytes == Bytes(4000));
}

TEST_CASE("slices of one message follow each other without waiting for the latency") {
  const Topology topology = star(2, Bandwidth(1'000'000'000), 5_us);
  // Four slices of 4096 B: 16.384 us of bytes, then one latency of 10 us; the copy costs nothing.
  const auto result =
      simulate_collective(one_way(plan::TransferOp::kCopy), 4096, 1024, topology, network_only());
  CHECK(result.time == Duration(16'384'000) + 10_us);
}

TEST_CASE("message overhead occupies the sender once per slice") {
  Topology topology("pair");
  const NodeId a = topology.add_node({.name = "a", .kind = NodeKind::kHost, .host = "a"});
  const NodeId b = topology.add_node({.name = "b", .kind = NodeKind::kHost, .host = "b"});
  topology.add_rank(a);
  topology.add_rank(b);
  topology.add_duplex_link(
      {.from = a, .to = b, .bandwidth = Bandwidth(1'000'000'000), .overhead = 3_us});
  const auto result =
      simulate_collective(one_way(plan::TransferOp::kCopy), 2048, 1024, topology, network_only());
  CHECK(result.time == Duration(8'192'000) + 6_us);
}

TEST_CASE("messages of a pair over one route follow each other, those over two go at once") {
  Topology topology("two cables");
  std::vector<LinkId> cables;
  const NodeId a = topology.add_node({.name = "a", .kind = NodeKind::kHost, .host = "a"});
  const NodeId b = topology.add_node({.name = "b", .kind = NodeKind::kHost, .host = "b"});
  topology.add_rank(a);
  topology.add_rank(b);
  for (const Bandwidth rate : {1_GBps, 4_GBps}) {
    cables.push_back(topology.add_link({.from = a, .to = b, .bandwidth = rate}));
    topology.add_link({.from = b, .to = a, .bandwidth = rate});
  }
  plan::TransferGraph graph("four messages", plan::Collective::kAllReduce, 2, {1, 1, 4, 4});
  const RouteId slow = graph.add_route({cables[0]});
  const RouteId fast = graph.add_route({cables[1]});
  const RouteId slow_again = graph.add_route({cables[0]});  // the same for all that it matters
  const auto send = [&](std::uint32_t chunk, RouteId route) {
    graph.add_transfer({.src = Rank(0), .dst = Rank(1), .chunk_begin = chunk, .route = route}, {});
  };
  send(0, slow);
  send(2, fast);
  send(1, slow_again);
  send(3, fast);
  SimulationOptions options = network_only();
  options.record_flows = true;
  const auto result = simulate_collective(graph, 10'000'000, 10'000'000, topology, options);
  // A chunk of 1 is 4 MB and takes the slow cable 4 ms, one of 4 the fast one as long.
  CHECK(result.time == 8_ms);
  std::vector<Duration> begins;
  for (const FlowRecord& flow : result.records.flow_records) {
    begins.push_back(flow.start);
  }
  std::sort(begins.begin(), begins.end());
  CHECK(begins == std::vector<Duration>{Duration(), Duration(), 4_ms, 4_ms});
}

TEST_CASE("incast: many senders share the receiver's link") {
  constexpr std::size_t kRanks = 9;
  const Topology topology = star(kRanks, Bandwidth(1'000'000'000), Duration());
  plan::TransferGraph graph("incast", plan::Collective::kAllReduce, kRanks, {1});
  const RouteId route = graph.add_route({});
  for (std::size_t r = 1; r < kRanks; ++r) {
    graph.add_transfer(
        {.src = Rank(r), .dst = Rank(0), .op = plan::TransferOp::kReduce, .route = route}, {});
  }
  const auto result = simulate_collective(graph, 1'000'000, 1 << 20, topology, network_only());
  CHECK(result.time.seconds() == Approx(8 * 4e6 / 1e9).epsilon(1e-6));
}

TEST_CASE("an end that is too far away is an error that names the slow link") {
  const Topology topology = star(2, Bandwidth(1), Duration());
  CHECK_THROWS_WITH(
      simulate_collective(one_way(), 10'000'000, 10'000'000, topology, network_only()),
      Catch::Contains("hub") && Catch::Contains("104 days"));
}

TEST_CASE("ring over a switch equals the closed form for large messages") {
  const std::size_t n = GENERATE(2, 3, 4, 8, 16);
  const Topology topology = star(n, Bandwidth(10'000'000'000), 1_us);
  constexpr std::int64_t kElements = 64 << 20;
  const auto result = simulate_collective(ring(n), kElements, kElements, topology, network_only());
  const double ranks = static_cast<double>(n);
  const double bytes = 4.0 * kElements;
  const double closed = 2 * (ranks - 1) / ranks * bytes / 10e9;
  CHECK(result.time.seconds() == Approx(closed).epsilon(0.005));
  CHECK(result.time.seconds() >= closed);
}

TEST_CASE("what depends on a transfer starts when it is applied, slice by slice") {
  const Topology topology = star(3, Bandwidth(1'000'000'000), Duration());
  plan::TransferGraph graph("chain", plan::Collective::kAllReduce, 3, {1});
  const RouteId route = graph.add_route({});
  const TransferId first = graph.add_transfer(
      {.src = Rank(0), .dst = Rank(1), .op = plan::TransferOp::kCopy, .route = route}, {});
  graph.add_transfer(
      {.src = Rank(1), .dst = Rank(2), .op = plan::TransferOp::kCopy, .route = route}, {&first, 1});
  // Whole: twice 4.096 ms. In 1,000 slices the second hop trails by one slice.
  const auto whole = simulate_collective(graph, 1'024'000, 1'024'000, topology, network_only());
  const auto sliced = simulate_collective(graph, 1'024'000, 1'024, topology, network_only());
  CHECK(whole.time == Duration(8'192'000'000));
  CHECK(sliced.time == Duration(4'096'000'000 + 4'096'000));
}

TEST_CASE("encoding delays a message and shrinks it; copies of one version are encoded once") {
  const Topology topology = star(3, Bandwidth(1'000'000'000), Duration());
  SimulationOptions options = network_only();
  options.device_rates->codecs[1] = {Bandwidth(1'000'000'000), Bandwidth(2'000'000'000)};
  plan::TransferGraph graph("codec", plan::Collective::kAllReduce, 3, {1});
  const std::uint8_t fp16 = graph.add_codec({.kind = plan::CodecKind::kFp16});
  const RouteId route = graph.add_route({});
  for (const int dst : {1, 2}) {
    graph.add_transfer({.src = Rank(0),
                        .dst = Rank(dst),
                        .op = plan::TransferOp::kCopy,
                        .codec = fp16,
                        .route = route},
                       {});
  }
  // Encode 4000 B at 1 GB/s: 4 us, once; the sender decodes its own copy at 2 GB/s: 2 us. Two
  // messages of 2000 B share the sender's link: 4 us. Receivers decode: 2 us.
  const auto result = simulate_collective(graph, 1000, 1024, topology, options);
  CHECK(result.time.picoseconds() == (12_us).picoseconds());
}

TEST_CASE("additions are applied in the order of their ids, whoever arrives first") {
  Topology topology("one slow link");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  const std::vector<Bandwidth> rates = {Bandwidth(1'000'000'000), Bandwidth(100'000'000),
                                        Bandwidth(1'000'000'000)};
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = hub, .bandwidth = rates[i]});
  }
  plan::TransferGraph graph("star", plan::Collective::kAllReduce, 3, {1});
  const RouteId route = graph.add_route({});
  for (const int src : {1, 2}) {
    graph.add_transfer(
        {.src = Rank(src), .dst = Rank(0), .op = plan::TransferOp::kReduce, .route = route}, {});
  }
  SimulationOptions options = network_only();
  options.device_rates->reduce = Bandwidth(1'000'000'000);
  // 4000 B: from rank 1 they take 40 us, from rank 2 4 us, each addition 4 us. The second may only
  // be applied after the first, at 44 us.
  const auto result = simulate_collective(graph, 1000, 1024, topology, options);
  CHECK(result.time.picoseconds() == (48_us).picoseconds());
}

plan::Workload two_layers() {
  plan::Workload workload;
  workload.name = "two layers";
  workload.tensors = {{"last", 1'000'000, 10_ms}, {"first", 1'000'000, 10_ms}};
  workload.forward = 10_ms;
  workload.fixed_share = 0;
  workload.optimizer = 1_ms;
  return workload;
}

plan::Plan plan_for(const Topology& topology, const plan::Workload& workload, bool one_bucket) {
  plan::Plan plan;
  plan.name = "test";
  plan.rank_names.assign(topology.rank_count(), "host");
  plan.workload_digest = workload.digest();
  plan.workload_name = workload.name;
  plan.schedules.push_back(ring(topology.rank_count()));
  if (one_bucket) {
    plan.buckets = {{.tensors = {0, 1}, .elements = 2'000'000, .slice_elements = 1 << 20}};
  } else {
    plan.buckets = {{.tensors = {0}, .elements = 1'000'000, .slice_elements = 1 << 20},
                    {.tensors = {1}, .elements = 1'000'000, .slice_elements = 1 << 20}};
  }
  plan.batch.local_batch.assign(topology.rank_count(), 1);
  return plan;
}

TEST_CASE("a step overlaps communication with the rest of backward") {
  const Topology topology = star(2, Bandwidth(1'000'000'000), Duration());
  const plan::Workload workload = two_layers();
  // Ring of 2 ranks: each chunk crosses twice, both directions at once: 4 MB take 4 ms.
  const StepResult apart =
      simulate_step(plan_for(topology, workload, false), workload, topology, network_only());
  const StepResult together =
      simulate_step(plan_for(topology, workload, true), workload, topology, network_only());
  // Forward 10, backward 20, the first bucket hides, the second 4 ms does not, optimiser 1.
  CHECK(apart.estimate.step_time.seconds() == Approx(35e-3).epsilon(1e-3));
  CHECK(together.estimate.step_time.seconds() == Approx(39e-3).epsilon(1e-3));
  CHECK(apart.estimate.compute_time == 31_ms);
  CHECK(apart.estimate.sync_share == Approx(4.0 / 35).epsilon(1e-2));
  CHECK(apart.estimate.bucket_ready[0] == 20_ms);
  CHECK(apart.estimate.bucket_ready[1] == 30_ms);
}

TEST_CASE("the critical path covers the step without gaps") {
  const Topology topology = star(4, Bandwidth(1'000'000'000), 2_us);
  const plan::Workload workload = two_layers();
  const StepResult result =
      simulate_step(plan_for(topology, workload, false), workload, topology, network_only());
  REQUIRE_FALSE(result.records.critical_path.empty());
  CHECK(result.records.critical_path.front().start == Duration());
  CHECK(result.records.critical_path.back().end == result.estimate.step_time);
  for (std::size_t i = 1; i < result.records.critical_path.size(); ++i) {
    CHECK(result.records.critical_path[i].start == result.records.critical_path[i - 1].end);
  }
}

TEST_CASE(
    "several steps: the last one is reported, and equals the first where nothing carries over") {
  const Topology topology = star(2, Bandwidth(1'000'000'000), Duration());
  const plan::Workload workload = two_layers();
  const plan::Plan plan = plan_for(topology, workload, false);
  SimulationOptions options = network_only();
  const StepResult one = simulate_step(plan, workload, topology, options);
  options.steps = 3;
  const StepResult three = simulate_step(plan, workload, topology, options);
  CHECK(three.estimate.step_time == one.estimate.step_time);
}

TEST_CASE("work on a shared processor slows everyone who uses it") {
  Topology topology = star(2, Bandwidth(1'000'000'000), Duration());
  const NodeId a = topology.add_node({.name = "cores-in"});
  const NodeId b = topology.add_node({.name = "cores-out"});
  // One core for both ranks: 30 ms of forward and backward each take 60 ms, the optimiser 2 ms.
  const LinkId cores = topology.add_link(
      {.from = a, .to = b, .bandwidth = Bandwidth(1'000'000'000), .cpu_share = 1.0});
  topology.set_processor(Rank(0), cores);
  topology.set_processor(Rank(1), cores);
  const plan::Workload workload = two_layers();
  const StepResult result =
      simulate_step(plan_for(topology, workload, false), workload, topology, network_only());
  CHECK(result.estimate.step_time.seconds() == Approx(66e-3).epsilon(0.01));
}

TEST_CASE("the same input gives the same result") {
  const Topology topology = star(5, Bandwidth(3'000'000'000), 7_us);
  const plan::Workload workload = two_layers();
  const plan::Plan plan = plan_for(topology, workload, false);
  SimulationOptions options = network_only();
  options.record_timeline = true;
  const StepResult a = simulate_step(plan, workload, topology, options);
  const StepResult b = simulate_step(plan, workload, topology, options);
  CHECK(a.estimate.step_time == b.estimate.step_time);
  CHECK(a.events == b.events);
  REQUIRE(a.records.timeline.size() == b.records.timeline.size());
  for (std::size_t i = 0; i < a.records.timeline.size(); ++i) {
    CHECK(a.records.timeline[i].what == b.records.timeline[i].what);
    CHECK(a.records.timeline[i].start == b.records.timeline[i].start);
    CHECK(a.records.timeline[i].end == b.records.timeline[i].end);
  }
}

TEST_CASE("what can never end is an error that says what waits for what") {
  const Topology topology = star(3, Bandwidth(1'000'000'000), Duration());
  plan::TransferGraph graph("stuck", plan::Collective::kAllReduce, 3, {1});
  const RouteId route = graph.add_route({});
  const TransferId elsewhere = graph.add_transfer(
      {.src = Rank(1), .dst = Rank(2), .op = plan::TransferOp::kCopy, .route = route}, {});
  // Rank 0 cannot see a transfer from 1 to 2, so nothing ever frees this one.
  graph.add_transfer(
      {.src = Rank(0), .dst = Rank(1), .op = plan::TransferOp::kCopy, .route = route},
      {&elsewhere, 1});
  CHECK_THROWS_AS(simulate_collective(graph, 1000, 1024, topology, network_only()),
                  SimulationError);
  CHECK_THROWS_WITH(simulate_collective(graph, 1000, 1024, topology, network_only()),
                    Catch::Contains("transfer 1 (rank 0 to rank 1), whose slice 0 waits for "
                                    "transfer 0 (rank 1 to rank 2), of which rank 0 is not told"));
}

TEST_CASE("of what waits for something that waits in vain, both are named") {
  const Topology topology = star(3, Bandwidth(1'000'000'000), Duration());
  plan::TransferGraph graph("chain", plan::Collective::kAllReduce, 3, {1});
  const RouteId route = graph.add_route({});
  const auto add = [&](std::size_t src, std::size_t dst, std::vector<TransferId> after) {
    return graph.add_transfer(
        {.src = Rank(src), .dst = Rank(dst), .op = plan::TransferOp::kCopy, .route = route}, after);
  };
  add(0, 2, {});  // the first connection is looked at first
  const TransferId first = add(0, 1, {});
  const TransferId second = add(2, 0, {first});  // rank 2 cannot see it
  SECTION("itself") {
    add(0, 2, {second});
    CHECK_THROWS_WITH(
        simulate_collective(graph, 1000, 1024, topology, network_only()),
        Catch::Contains("transfer 3 (rank 0 to rank 2), whose slice 0 waits for transfer 2 (rank 2 "
                        "to rank 0), which waits for transfer 1 (rank 0 to rank 1), of which rank "
                        "2 is not told"));
  }
  SECTION("or for what is to follow it") {
    const TransferId third = add(2, 0, {});
    add(0, 2, {third});
    CHECK_THROWS_WITH(
        simulate_collective(graph, 1000, 1024, topology, network_only()),
        Catch::Contains("transfer 4 (rank 0 to rank 2), whose slice 0 waits for transfer 3 (rank 2 "
                        "to rank 0), which is to follow transfer 2 (rank 2 to rank 0), which waits "
                        "for transfer 1 (rank 0 to rank 1), of which rank 2 is not told"));
  }
}

TEST_CASE("a plan for another number of ranks or another model is refused") {
  const Topology topology = star(2, Bandwidth(1'000'000'000), Duration());
  plan::Workload workload = two_layers();
  const plan::Plan plan = plan_for(topology, workload, false);
  CHECK_THROWS_AS(simulate_step(plan, workload, star(3, Bandwidth(1), Duration()), network_only()),
                  PlanError);
  workload.tensors[0].elements += 1;
  CHECK_THROWS_AS(simulate_step(plan, workload, topology, network_only()), PlanError);
}

}  // namespace
}  // namespace rackrail::sim::simulator_test
