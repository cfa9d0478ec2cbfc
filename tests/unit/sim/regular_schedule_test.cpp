// Three ways to simulate one schedule must agree to the picosecond: as a graph, by formulas, and
// by formulas folded where the cluster repeats.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "plan/regular_schedule.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim::regular_schedule_test {
namespace {

using topology::NodeKind;
using topology::Topology;

struct Shape {
  std::size_t leaves = 1;
  std::size_t hosts = 2;  // per leaf
  std::size_t gpus = 1;   // per host; one is the host itself
  Bandwidth uplink = 100_Gbps;
  Bandwidth host_staging{};
};

// Leaves under one spine; GPUs of a host on a switch of their own, which leads to the leaf.
Topology cluster(const Shape& shape) {
  Topology topology("cluster");
  const NodeId spine = topology.add_node({.name = "spine", .kind = NodeKind::kSpine});
  for (std::size_t l = 0; l < shape.leaves; ++l) {
    const NodeId leaf =
        topology.add_node({.name = fmt::format("leaf{}", l), .kind = NodeKind::kTor});
    topology.add_duplex_link(
        {.from = leaf, .to = spine, .bandwidth = shape.uplink, .latency = 1_us});
    for (std::size_t h = 0; h < shape.hosts; ++h) {
      const std::string host = fmt::format("host{}-{}", l, h);
      const NodeId inside =
          topology.add_node({.name = host + "-switch", .kind = NodeKind::kNvSwitch, .host = host});
      topology.add_duplex_link({.from = inside,
                                .to = leaf,
                                .bandwidth = 100_Gbps,
                                .latency = 2_us,
                                .overhead = Duration(700'001)});
      for (std::size_t g = 0; g < shape.gpus; ++g) {
        topology::Node node{.name = fmt::format("{}-gpu{}", host, g),
                            .kind = NodeKind::kGpu,
                            .host = host,
                            .device_class = "a100"};
        node.host_staging = shape.host_staging;
        const NodeId gpu = topology.add_node(node);
        topology.add_rank(gpu);
        topology.add_duplex_link(
            {.from = gpu, .to = inside, .bandwidth = 300_GBps, .latency = Duration(300'007)});
      }
    }
  }
  return topology;
}

std::unique_ptr<plan::RegularSchedule> ring(std::size_t ranks) {
  std::vector<Rank> order;
  for (std::size_t r = 0; r < ranks; ++r) {
    order.emplace_back(r);
  }
  return plan::make_ring_schedule(order);
}

std::unique_ptr<plan::RegularSchedule> hierarchical_ring(std::size_t groups, std::size_t members) {
  std::vector<std::vector<Rank>> ranks(groups);
  for (std::size_t r = 0; r < groups * members; ++r) {
    ranks[r / members].emplace_back(r);
  }
  return plan::make_hierarchical_ring_schedule(ranks);
}

plan::TransferGraph as_graph(const plan::RegularSchedule& schedule) {
  plan::TransferGraph graph(schedule.name(), plan::Collective::kAllReduce, schedule.rank_count(),
                            std::vector<std::uint32_t>(schedule.chunk_count(), 1));
  const RouteId route = graph.add_route({});
  const auto lanes = schedule.lanes();
  std::vector<TransferId> ids;
  for (const plan::ListedStep& listed : plan::list_steps(schedule)) {
    std::vector<TransferId> after;
    for (const std::uint32_t d : listed.dependencies) {
      after.push_back(ids[d]);
    }
    ids.push_back(graph.add_transfer({.src = lanes[listed.place.lane].src,
                                      .dst = lanes[listed.place.lane].dst,
                                      .chunk_begin = listed.step.chunk_begin,
                                      .chunk_count = listed.step.chunk_count,
                                      .op = listed.step.op,
                                      .route = route},
                                     after));
  }
  return graph;
}

void check_equal(const CollectiveResult& a, const CollectiveResult& b) {
  CHECK(a.time.picoseconds() == b.time.picoseconds());
  CHECK(a.flows * a.copies == b.flows * b.copies);
  REQUIRE(a.links.size() == b.links.size());
  for (std::size_t i = 0; i < a.links.size(); ++i) {
    CHECK(a.links[i].link == b.links[i].link);
    CHECK(a.links[i].bytes == b.links[i].bytes);
  }
}

struct Results {
  CollectiveResult graph;
  CollectiveResult formulas;
  CollectiveResult folded;
};

Results simulate(const plan::RegularSchedule& schedule, const Topology& topology,
                 std::int64_t elements, std::int64_t slice_elements) {
  return {
      simulate_collective(as_graph(schedule), elements, slice_elements, topology, {}),
      simulate_collective(schedule, elements, slice_elements, topology, {.use_symmetry = false}),
      simulate_collective(schedule, elements, slice_elements, topology, {})};
}

TEST_CASE("by formulas, folded or as a graph: the same times and bytes") {
  const Shape shape =
      GENERATE(Shape{1, 2, 1}, Shape{1, 6, 1}, Shape{3, 4, 1}, Shape{4, 2, 1, 50_Gbps},
               Shape{1, 4, 4}, Shape{2, 2, 4}, Shape{3, 2, 2, 30_Gbps}, Shape{1, 2, 8, 10_Gbps},
               Shape{6, 1, 3}, Shape{3, 2, 2, 30_Gbps, 5_GBps});
  const bool is_hierarchical = GENERATE(false, true);
  // Whole chunks, slices of them, and sizes that no number of chunks divides.
  const auto [elements, slice_elements] =
      GENERATE(std::pair{std::int64_t{144'000}, std::int64_t{1} << 30},
               std::pair{std::int64_t{144'000}, std::int64_t{1'000}},
               std::pair{std::int64_t{144'007}, std::int64_t{1'000}});
  CAPTURE(shape.leaves, shape.hosts, shape.gpus, is_hierarchical, elements, slice_elements);
  const Topology topology = cluster(shape);
  const auto schedule = is_hierarchical ? hierarchical_ring(shape.leaves * shape.hosts, shape.gpus)
                                        : ring(topology.rank_count());
  const Results results = simulate(*schedule, topology, elements, slice_elements);
  check_equal(results.formulas, results.graph);
  check_equal(results.folded, results.graph);
  CHECK(results.formulas.copies == 1);
  CHECK(results.formulas.flows == results.graph.flows);
  CHECK(results.formulas.events == results.graph.events);
}

TEST_CASE("a ring over four equal leaves is simulated on one of them") {
  const Topology topology = cluster({.leaves = 4, .hosts = 8});
  const auto result = simulate_collective(*ring(32), 32'000, 32'000, topology, {});
  CHECK(result.copies == 4);
  CHECK(result.flows == 8 * 2 * 31);
}

TEST_CASE("where one part differs, everything is simulated") {
  Topology topology("cluster");
  SECTION("a slower link") {
    topology = cluster({.leaves = 4, .hosts = 2});
    topology.set_link_rate(LinkId(4), 99_Gbps, 2_us);
  }
  SECTION("another device") {
    topology = cluster({.leaves = 4, .hosts = 2});
    const NodeId host = topology.add_node(
        {.name = "other", .kind = NodeKind::kGpu, .host = "other", .device_class = "v100"});
    topology.add_rank(host);
    topology.add_duplex_link(
        {.from = host, .to = NodeId(1), .bandwidth = 100_Gbps, .latency = 2_us});
  }
  const auto schedule = ring(topology.rank_count());
  const auto elements = static_cast<std::int64_t>(topology.rank_count() * 1000);
  const Results results = simulate(*schedule, topology, elements, elements);
  CHECK(results.folded.copies == 1);
  check_equal(results.folded, results.graph);
}

TEST_CASE("fewer elements than chunks are refused by formulas") {
  const Topology topology = cluster({.hosts = 4});
  CHECK_THROWS_AS(simulate_collective(*ring(4), 3, 1, topology, {}), SimulationError);
}

}  // namespace
}  // namespace rackrail::sim::regular_schedule_test
