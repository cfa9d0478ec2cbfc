// Collectives and steps of which only the ranks are simulated that stand for all, against all.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/planner.hpp"
#include "sim/graph_indexer.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::folded_steps_test {
namespace {

constexpr std::int64_t kSlice = 1 << 14;
// Where messages meet at one instant, either order is right (sim/layout_turns.hpp): 1.3 % here.
constexpr double kOrders = 0.02;

/// A cost model that folds, but lets no flow end early; or one that does not fold.
std::unique_ptr<plan::CostModel> costs_of(const topology::Topology& topology, bool folds) {
  sim::SimulationOptions options;
  options.tolerance = 1e-12;
  options.use_symmetry = folds;
  return sim::make_cost_model(topology, options);
}

plan::TransferGraph graph_of(const char* family, const topology::Topology& topology,
                             const TierCodecs& codecs = {}) {
  topology::Router router(topology);
  return schedule_family(family).all_reduce({topology, router, codecs});
}

/// Boxes of 4 GPUs on a switch, which share one cable of 10 GB/s and 50 us to the others.
topology::Topology boxes_with_one_cable(int count) {
  using topology::NodeKind;
  topology::Topology topology("boxes with one cable");
  const NodeId core = topology.add_node({.name = "core", .kind = NodeKind::kTor});
  for (int b = 0; b < count; ++b) {
    const std::string host = "box" + std::to_string(b);
    const NodeId inside =
        topology.add_node({.name = host + "-switch", .kind = NodeKind::kPciSwitch, .host = host});
    topology.add_duplex_link({.from = inside, .to = core, .bandwidth = 10_GBps, .latency = 50_us});
    for (int g = 0; g < 4; ++g) {
      const NodeId gpu = topology.add_node({.name = host + "-gpu" + std::to_string(g),
                                            .kind = NodeKind::kGpu,
                                            .host = host,
                                            .device_class = "H100"});
      topology.add_rank(gpu);
      topology.add_duplex_link({.from = gpu, .to = inside, .bandwidth = 100_GBps, .latency = 1_us});
    }
  }
  return topology;
}

sim::Turns turns_of(const plan::TransferGraph& graph, const topology::Topology& topology) {
  sim::GraphIndexer indexer(topology, sim::SimulationOptions{});
  const sim::Buffer buffer{graph, 1 << 20, kSlice};
  const auto folded = indexer.folded({&buffer, 1});
  return folded.has_value() ? folded->turns : indexer.ranks().no_turns();
}

TEST_CASE("a cluster on rails is turned by hosts, and by the GPUs of all hosts at once") {
  const topology::Topology topology = test::boxes(4, 8);
  const auto turns = [&](const char* family) {
    return turns_of(graph_of(family, topology), topology);
  };
  CHECK(turns("hierarchical") == sim::Turns{1, 1});
  CHECK(turns("hierarchical-ring") == sim::Turns{1, 1});
  CHECK(turns("hierarchical-tree") == sim::Turns{4, 1});  // hosts have places in the trees
  CHECK(turns("double-binary-tree") == sim::Turns{4, 8});
}

TEST_CASE("a cost model says how many transfers it follows") {
  const topology::Topology topology = test::boxes(4, 8);
  const auto followed = [&](const char* family, bool folds) {
    const plan::TransferGraph graph = graph_of(family, topology);
    return std::pair(costs_of(topology, folds)->followed_transfers(graph),
                     graph.transfers().size());
  };
  const auto [one_rank, all] = followed("hierarchical", true);
  CHECK(one_rank * 32 == all);
  const auto [one_member, all_of_tree] = followed("hierarchical-tree", true);
  CHECK(one_member * 8 == all_of_tree);
  const auto [flat, all_of_flat] = followed("double-binary-tree", true);
  CHECK(flat == all_of_flat);
  const auto [unfolded, all_again] = followed("hierarchical", false);
  CHECK(unfolded == all_again);
}

TEST_CASE("what is not symmetric is not folded") {
  SECTION("racks of unequal size") {
    const topology::Topology topology = test::clos({3, 5, 4}, 2);
    CHECK(turns_of(graph_of("ring", topology), topology) == sim::Turns{1, 12});
  }
  SECTION("one host with a slower link") {
    topology::Topology topology = test::boxes(4, 8);
    const LinkId link = topology.links_out_of(topology.node_of(Rank(0)))[1];
    topology.set_link_rate(link, Bandwidth(1'000'000'000), topology.link(link).latency);
    CHECK(turns_of(graph_of("hierarchical", topology), topology) == sim::Turns{4, 8});
  }
  SECTION("a transfer more") {
    const topology::Topology topology = test::boxes(4, 8);
    plan::TransferGraph graph = graph_of("hierarchical", topology);
    graph.add_transfer({.src = Rank(3), .dst = Rank(4)}, {});
    CHECK(turns_of(graph, topology) == sim::Turns{4, 8});
  }
  SECTION("a dependency more") {
    const topology::Topology topology = test::boxes(2, 8);
    plan::TransferGraph graph("two ways", plan::Collective::kAllReduce, 16, {1});
    std::vector<TransferId> first;
    for (std::size_t r = 0; r < 16; ++r) {
      first.push_back(graph.add_transfer({.src = Rank(r), .dst = Rank((r + 8) % 16)}, {}));
    }
    for (std::size_t r = 0; r < 16; ++r) {
      graph.add_transfer({.src = Rank(r), .dst = Rank(r / 8 * 8 + (r + 1) % 8)},
                         std::span(&first[(r + 8) % 16], 1));
    }
    CHECK(turns_of(graph, topology) == sim::Turns{1, 1});
    graph.add_transfer({.src = Rank(0), .dst = Rank(1)}, {});
    graph.add_transfer({.src = Rank(8), .dst = Rank(9)}, std::span(&first[0], 1));
    CHECK(turns_of(graph, topology) == sim::Turns{2, 8});
  }
}

TEST_CASE("a folded collective takes as long as all of it", "[slow]") {
  const std::string name = GENERATE("4 boxes, 8 rails", "4 boxes, 2 spines", "a100-4x8", "racks",
                                    "one cable", "two NICs each");
  const topology::Topology topology = name == "4 boxes, 8 rails"    ? test::boxes(4, 8)
                                      : name == "4 boxes, 2 spines" ? test::boxes(4, 2)
                                      : name == "a100-4x8"          ? test::a100_4x8()
                                      : name == "one cable"         ? boxes_with_one_cable(4)
                                      : name == "two NICs each" ? test::hosts_with_nics(6, {25, 25})
                                                                : test::clos({4, 4, 4}, 4);
  const plan::Codec codec{.kind = GENERATE(plan::CodecKind::kNone, plan::CodecKind::kFp16,
                                           plan::CodecKind::kInt8Block)};
  const TierCodecs codecs{plan::Codec{}, codec};
  const auto all = costs_of(topology, false);
  const auto one = costs_of(topology, true);
  topology::Router router(topology);
  for (const auto& family : schedule_families()) {
    if (family->refusal(topology, codecs).has_value()) {
      continue;
    }
    const plan::TransferGraph graph = family->all_reduce({topology, router, codecs});
    const sim::RankTable ranks(topology);
    const bool folds = turns_of(graph, topology) != ranks.no_turns();
    for (const std::int64_t elements : {1 << 12, 1 << 18, 1 << 22, 3'000'001}) {
      const Duration whole = all->collective_time(graph, elements, kSlice);
      const Duration folded = one->collective_time(graph, elements, kSlice);
      CAPTURE(name, plan::to_string(codec), family->name(), folds, elements, folded / whole);
      CHECK(folded / whole == Approx(1).epsilon(folds ? kOrders : 0));
    }
  }
}

TEST_CASE("two routes of a pair stay two where a fold lays one over the other") {
  // Two racks of two hosts, with two uplinks each that the hosts take in turn.
  topology::Topology topology("uplinks in turn");
  const auto join = [&](NodeId from, NodeId to, Bandwidth rate, Bandwidth flow = Bandwidth()) {
    topology::Link link{.from = from, .to = to, .bandwidth = rate, .latency = 1_us};
    link.flow_bandwidth = flow;
    return topology.add_link(link);
  };
  std::vector<NodeId> spines;
  for (const char* name : {"spine0", "spine1"}) {
    spines.push_back(topology.add_node({.name = name, .kind = topology::NodeKind::kSpine}));
  }
  std::vector<LinkId> from_host;
  std::vector<LinkId> to_host;
  std::vector<std::vector<LinkId>> up(2);
  std::vector<std::vector<LinkId>> down(2);
  for (std::size_t r = 0; r < 2; ++r) {
    const std::string rack = "rack" + std::to_string(r);
    const NodeId tor =
        topology.add_node({.name = "tor" + rack, .kind = topology::NodeKind::kTor, .rack = rack});
    for (const NodeId spine : spines) {
      up[r].push_back(join(tor, spine, 10_GBps));
      down[r].push_back(join(spine, tor, 10_GBps));
    }
    for (const char* host : {"a", "b"}) {
      const NodeId gpu = topology.add_node({.name = rack + host,
                                            .kind = topology::NodeKind::kGpu,
                                            .host = rack + host,
                                            .rack = rack});
      topology.add_rank(gpu);
      from_host.push_back(join(gpu, tor, 20_GBps, 1_GBps));
      to_host.push_back(join(tor, gpu, 20_GBps, 1_GBps));
    }
  }
  plan::TransferGraph graph("pairs", plan::Collective::kAllReduce, 4,
                            std::vector<std::uint32_t>(8, 1));
  for (std::uint32_t src = 0; src < 4; ++src) {
    const std::uint32_t dst = (src + 2) % 4;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t uplink = src % 2 ^ i;
      const RouteId route = graph.add_route(
          {from_host[src], up[src / 2][uplink], down[dst / 2][uplink], to_host[dst]});
      graph.add_transfer(
          {.src = Rank(src), .dst = Rank(dst), .chunk_begin = 2 * src + i, .route = route}, {});
    }
  }
  REQUIRE(turns_of(graph, topology) != sim::RankTable(topology).no_turns());
  const Duration whole = costs_of(topology, false)->collective_time(graph, 8'000'000, 1'000'000);
  const Duration folded = costs_of(topology, true)->collective_time(graph, 8'000'000, 1'000'000);
  CHECK(whole < 4'100_us);  // 4 MB over each route, with 1 GB/s at most
  CHECK(folded == whole);
}

TEST_CASE("a folded step takes as long as all of it") {
  const topology::Topology topology = test::boxes(4, 8);
  const plan::Workload workload = plan::read_workload("resnet-50", topology::configs_folder());
  const auto all = costs_of(topology, false);
  const auto one = costs_of(topology, true);
  PlannerOptions options;
  options.schedule = GENERATE("hierarchical", "hierarchical-ring", "hierarchical-tree", "ring");
  options.bucket_size = 8_MiB;
  options.compare_baselines = false;
  plan::Plan plan = make_plan(topology, workload, *one, options);
  const auto compare = [&] {
    const plan::StepEstimate whole = all->step(plan, workload);
    const plan::StepEstimate folded = one->step(plan, workload);
    CAPTURE(*options.schedule, folded.step_time / whole.step_time);
    CHECK(folded.step_time / whole.step_time == Approx(1).epsilon(kOrders));
    CHECK(folded.compute_time == whole.compute_time);
    CHECK(folded.sync_share == Approx(whole.sync_share).margin(kOrders));
    REQUIRE(folded.bucket_done.size() == whole.bucket_done.size());
    CHECK(folded.bucket_ready == whole.bucket_ready);
  };
  compare();
  SECTION("with another schedule that turns otherwise") {
    plan.schedules.push_back(graph_of("ring", topology));
    plan.buckets.back().schedule = static_cast<std::uint32_t>(plan.schedules.size() - 1);
    plan.buckets.back().codec = plan::Codec{};
    compare();
  }
  SECTION("with one that has no turns") {
    plan.schedules.push_back(graph_of("double-binary-tree", topology));
    plan.buckets.back().schedule = static_cast<std::uint32_t>(plan.schedules.size() - 1);
    CHECK(one->step(plan, workload).step_time == all->step(plan, workload).step_time);
  }
  SECTION("where one host has a smaller batch, all are simulated") {
    plan.batch.local_batch[5] = 1;
    CHECK(one->step(plan, workload).step_time == all->step(plan, workload).step_time);
  }
}

}  // namespace
}  // namespace rackrail::planner::folded_steps_test
