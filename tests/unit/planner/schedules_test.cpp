#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/work.hpp"
#include "plan/mutual_sum.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/rank_groups.hpp"
#include "tests/support/broken_grids.hpp"
#include "tests/support/grids.hpp"
#include "tests/support/skip.hpp"
#include "topology/linear_program.hpp"

namespace rackrail::planner::schedules_test {
namespace {

using topology::NodeKind;
using topology::Topology;

// Racks of so many hosts; hosts of one GPU are the rank themselves.
Topology uneven_cluster(const std::vector<int>& racks, int gpus) {
  Topology topology("cluster");
  const NodeId core = topology.add_node({.name = "core", .kind = NodeKind::kCore});
  for (std::size_t r = 0; r < racks.size(); ++r) {
    const std::string rack = fmt::format("rack{}", r);
    const NodeId tor = topology.add_node({.name = rack + "-tor", .kind = NodeKind::kTor});
    topology.add_duplex_link({.from = tor, .to = core, .bandwidth = 40_Gbps, .tier = "uplink"});
    for (int h = 0; h < racks[r]; ++h) {
      const std::string host = fmt::format("{}-host{}", rack, h);
      const NodeId inside =
          topology.add_node({.name = host + "-switch", .kind = NodeKind::kNvSwitch, .host = host});
      topology.add_duplex_link({.from = inside, .to = tor, .bandwidth = 100_Gbps, .tier = "host"});
      for (int g = 0; g < gpus; ++g) {
        const NodeId gpu = topology.add_node({.name = fmt::format("{}-gpu{}", host, g),
                                              .kind = NodeKind::kGpu,
                                              .host = host,
                                              .rack = rack});
        topology.add_rank(gpu);
        topology.add_duplex_link(
            {.from = gpu, .to = inside, .bandwidth = 300_GBps, .tier = "nvlink"});
      }
    }
  }
  return topology;
}

// racks × hosts × gpus.
Topology cluster(int racks, int hosts, int gpus) {
  return uneven_cluster(std::vector<int>(static_cast<std::size_t>(racks), hosts), gpus);
}

// Executes a graph with whole numbers in floats, in id order: sums of whole numbers are exact, so a
// missing or doubled contribution shows. Ids are a topological order, so this is a legal execution,
// as long as the members of a mutual sum send what they had before it.
std::vector<std::vector<float>> execute(const plan::TransferGraph& graph, std::int64_t elements) {
  std::vector<std::vector<float>> buffers;
  for (std::size_t r = 0; r < graph.rank_count(); ++r) {
    auto& buffer = buffers.emplace_back();
    for (std::int64_t i = 0; i < elements; ++i) {
      buffer.push_back(static_cast<float>((r + 1) * static_cast<std::size_t>(i % 13 + 1)));
    }
  }
  const plan::MutualSums sums(graph);
  std::vector<std::vector<float>> before;
  for (std::size_t id = 0; id < graph.transfers().size(); ++id) {
    const plan::Transfer& t = graph.transfers()[id];
    const plan::TransferGroup* sum = sums.sum_of(TransferId(id));
    if (sum != nullptr && sum->first == TransferId(id)) {
      before = buffers;
    }
    const auto& source = (sum != nullptr ? before : buffers)[t.src.index()];
    const plan::ElementRange range = graph.range(t, elements);
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      float& target = buffers[t.dst.index()][static_cast<std::size_t>(i)];
      const float value = source[static_cast<std::size_t>(i)];
      target = t.op == plan::TransferOp::kReduce ? target + value : value;
    }
  }
  return buffers;
}

TEST_CASE("every family with every codec that it accepts is verified and sums exactly") {
  struct Shape {
    int racks;
    int hosts;
    int gpus;
  };
  const Shape shape = GENERATE(Shape{1, 2, 1}, Shape{1, 3, 1}, Shape{2, 2, 1}, Shape{1, 5, 1},
                               Shape{2, 3, 1}, Shape{1, 7, 1}, Shape{2, 2, 2}, Shape{1, 9, 1},
                               Shape{3, 4, 1}, Shape{2, 2, 4}, Shape{1, 1, 8}, Shape{3, 1, 3});
  const Topology topology = cluster(shape.racks, shape.hosts, shape.gpus);
  CAPTURE(shape.racks, shape.hosts, shape.gpus);
  topology::Router router(topology);
  int graphs = 0;
  for (const auto& family : schedule_families()) {
    for (const plan::Codec& inside : plan::known_codecs()) {
      for (const plan::Codec& across : plan::known_codecs()) {
        const TierCodecs codecs{inside, across};
        if (family->refusal(topology, codecs).has_value()) {
          continue;
        }
        CAPTURE(family->name(), plan::to_string(inside), plan::to_string(across));
        const plan::TransferGraph graph = family->all_reduce({topology, router, codecs});
        const plan::VerifyReport report = plan::verify(graph, &topology);
        CHECK(report.problems == std::vector<std::string>{});
        ++graphs;
        const std::int64_t elements = 37;  // fewer than there are chunks, in the larger shapes
        const float sum =
            static_cast<float>(topology.rank_count() * (topology.rank_count() + 1) / 2);
        for (const auto& buffer : execute(graph, elements)) {
          for (std::size_t i = 0; i < buffer.size(); ++i) {
            REQUIRE(buffer[i] == sum * static_cast<float>(i % 13 + 1));
          }
        }
      }
    }
  }
  CHECK(graphs >= 8);  // ring, tree, halving-doubling in FP32 and FP16, parameter server in more
}

TEST_CASE("reduce-scatters and all-gathers are verified, and a ring's are half an all-reduce") {
  for (const Topology& topology : {cluster(1, 2, 1), cluster(1, 5, 1), cluster(2, 3, 1),
                                   cluster(2, 2, 2), cluster(1, 1, 8), cluster(3, 1, 3)}) {
    topology::Router router(topology);
    const ScheduleRequest request{.topology = topology, .router = router, .codecs = {}};
    CAPTURE(topology.rank_count());
    std::set<std::string_view> with;
    for (const auto& family : schedule_families()) {
      for (const auto what : {plan::Collective::kReduceScatter, plan::Collective::kAllGather}) {
        for (const CollectiveForm& form : family->collectives(what, request)) {
          const plan::TransferGraph& graph = form.graph();
          CAPTURE(family->name());
          CHECK(graph.collective() == what);
          const FormShape shape = shape_of(graph);
          CHECK(form.shape().transfers == shape.transfers);
          CHECK(form.shape().largest_share == Approx(shape.largest_share));
          const plan::AlphaBeta bound = plan::alpha_beta(graph, topology);
          for (const std::int64_t elements : {1, 1 << 10, 1 << 20, 1 << 30}) {
            CHECK(form.shape().bound.value().at_least(elements) <=
                  bound.at_least(elements) + 1_ns);  // sums are rounded
          }
          CHECK(form.shape().bound->at_least(1 << 30) >= scaled(bound.at_least(1 << 30), 0.999));
          CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
          if (family->name() == "ring") {
            CHECK(2 * graph.transfers().size() == family->all_reduce(request).transfers().size());
          }
          with.insert(family->name());
        }
      }
    }
    CHECK(with.count("ring") + with.count("forest") == 2);
  }
}

void check_sums(const plan::TransferGraph& graph, const Topology& topology) {
  CAPTURE(graph.transfers().size());
  CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
  const auto ranks = static_cast<float>(topology.rank_count());
  for (const std::int64_t elements : {5, 601}) {  // few chunks with an element, and all
    for (const auto& buffer : execute(graph, elements)) {
      for (std::size_t i = 0; i < buffer.size(); ++i) {
        REQUIRE(buffer[i] == ranks * (ranks + 1) / 2 * static_cast<float>(i % 13 + 1));
      }
    }
  }
}

/// Of all families that can be used, of which this has to be one.
void check_families(const Topology& topology, std::string_view must) {
  topology::Router router(topology);
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  for (const auto& family : schedule_families()) {
    for (const TierCodecs& codecs : {TierCodecs{}, TierCodecs{fp16, fp16}}) {
      CAPTURE(family->name(), topology.rank_count(), plan::to_string(codecs.inside));
      const auto refusal = family->refusal(topology, codecs);
      if (family->name() == must) {
        REQUIRE(refusal == std::nullopt);
      }
      if (refusal.has_value()) {
        continue;
      }
      for (const plan::TransferGraph& graph : family->all_reduces({topology, router, codecs})) {
        check_sums(graph, topology);
      }
    }
  }
}

TEST_CASE("every family is right on grids and tori, and the torus family on all of them") {
  using test::Side;
  const auto sides = GENERATE(
      std::vector<Side>{{2, false}}, std::vector<Side>{{6, false}}, std::vector<Side>{{5, true}},
      std::vector<Side>{{4, true}, {4, true}}, std::vector<Side>{{3, true}, {3, true}},
      std::vector<Side>{{5, true}, {3, false}}, std::vector<Side>{{4, false}, {3, false}},
      std::vector<Side>{{3, true}, {2, false}, {5, true}});
  constexpr std::uint32_t kSeed = 7;
  std::mt19937 random(kSeed);
  const Topology topology = test::grid(sides, random);
  check_families(topology, "torus");
}

TEST_CASE("every family is right on grids that have lost a cable or have a slow one") {
  check_families(test::broken_grid(3, 5, false, {{10}}), "forest");
  check_families(test::broken_grid(4, 4, true, {{12}, {20, Bandwidth(250'000'000)}}), "forest");
}

TEST_CASE("the torus family sends over direct links only, and over all of them alike") {
  constexpr std::uint32_t kSeed = 3;
  std::mt19937 random(kSeed);
  const Topology topology = test::grid({{5, true}, {5, true}, {5, true}}, random);
  topology::Router router(topology);
  const auto graph = schedule_family("torus").all_reduce({topology, router, {}});
  constexpr std::int64_t kElements = 6 * 125 * 8;  // as many in each chunk
  std::vector<std::int64_t> sent(topology.link_count());
  for (const plan::Transfer& transfer : graph.transfers()) {
    const auto& route = graph.routes()[transfer.route.index()];
    REQUIRE(route.size() == 1);
    sent[route[0].index()] += graph.range(transfer, kElements).size();
  }
  for (const std::int64_t elements : sent) {
    CHECK(elements == 2 * (kElements - kElements / 125) / 6);
  }
}

TEST_CASE("families refuse what would hurt, with a reason") {
  const Topology topology = cluster(2, 2, 1);
  const plan::Codec int8 = plan::parse_codec("int8");
  const plan::Codec top = plan::parse_codec("topk");
  for (const char* name : {"ring", "double-binary-tree", "halving-doubling"}) {
    const auto refusal = schedule_family(name).refusal(topology, {top, top});
    REQUIRE(refusal.has_value());
    CHECK_THAT(*refusal, Catch::Contains("several hops"));
  }
  // 8-bit blocks may take several hops, if what is passed on keeps its ranges.
  CHECK(schedule_family("ring").refusal(topology, {int8, int8}) == std::nullopt);
  CHECK_THAT(schedule_family("halving-doubling").refusal(topology, {int8, int8}).value(),
             Catch::Contains("several ranges"));
  CHECK(schedule_family("hierarchical").refusal(cluster(1, 4, 1), {}).has_value());
  CHECK_THAT(schedule_family("hierarchical").refusal(cluster(4, 1, 1), {}).value(),
             Catch::Contains("'vertex,role,host'"));
  CHECK(schedule_family("parameter-server").refusal(topology, {int8, int8}) == std::nullopt);
  CHECK(schedule_family("ring").refusal(cluster(1, 1, 1), {}).has_value());
  CHECK_THROWS_AS(schedule_family("rings"), ConfigError);
}

TEST_CASE("a schedule is not made to its end once there is no time for it") {
  for (const char* name : {"ring", "forest"}) {
    const Topology topology = cluster(2, 4, 2);
    topology::Router router(topology);
    const ScheduleRequest request{.topology = topology, .router = router, .codecs = {}};
    INFO(name);
    const auto make_until = [&](const std::function<bool()>& stop) {
      const StoppableWork stoppable(stop);
      return schedule_family(name).all_reduce(request).transfers().size();
    };
    CHECK_THROWS_AS(make_until([] { return true; }), WorkStopped);
    CHECK(make_until([] { return false; }) > 0);
    CHECK(make_until({}) > 0);
  }
}

TEST_CASE("a k-nomial tree takes 2(n-1) messages, of which two per rack and per host leave it") {
  const std::vector<int> racks = GENERATE(std::vector{2, 2}, std::vector{3, 1, 2}, std::vector{4},
                                          std::vector{1, 1, 1, 1, 1, 1, 1});
  const int gpus = GENERATE(1, 3, 8);
  CAPTURE(racks, gpus);
  const Topology topology = uneven_cluster(racks, gpus);
  topology::Router router(topology);
  const ScheduleFamily& family = schedule_family("knomial-tree");
  const auto graphs = family.all_reduces({topology, router, {}});
  REQUIRE(!graphs.empty());
  std::size_t hosts = 0;
  for (const int rack : racks) {
    hosts += static_cast<std::size_t>(rack);
  }
  const std::size_t ranks = topology.rank_count();
  const bool has_star = ranks <= 16;
  const bool has_two = ranks > 2 && ranks <= 16;  // trees, after all others
  CHECK(graphs.back().chunk_count() == (has_two ? 2 : 1));
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    const plan::TransferGraph& graph = graphs[g];
    const std::size_t trees = graph.chunk_count();
    const plan::VerifyReport report = plan::verify(graph, &topology);
    CHECK(report.problems.empty());
    CHECK(graph.transfers().size() == 2 * trees * (ranks - 1));
    std::size_t between_hosts = 0;
    std::size_t between_racks = 0;
    for (const plan::Transfer& t : graph.transfers()) {
      const topology::Node& from = topology.node(topology.node_of(t.src));
      const topology::Node& to = topology.node(topology.node_of(t.dst));
      between_hosts += from.host != to.host ? 1 : 0;
      between_racks += from.rack != to.rack ? 1 : 0;
    }
    if (has_star && g + (has_two ? 2 : 1) == graphs.size()) {
      CHECK(report.depth == 2);
    } else {
      CHECK(between_hosts == 2 * trees * (hosts - 1));
      CHECK(between_racks == 2 * trees * (racks.size() - 1));
    }
  }
}

TEST_CASE("of two k-nomial trees each rank's links carry little more than the least") {
  // 4x2: the uplinks are the bottleneck, and cannot carry less than 2(k-1)/k of the buffer for k
  // racks; 2x4: a host's link carries 2(n-1)/n at least, and here twice the buffer.
  const auto [racks, hosts, across, inside] =
      GENERATE(std::array{4, 2, 6, 8}, std::array{2, 4, 4, 8});
  const Topology topology = cluster(racks, hosts, 1);
  topology::Router router(topology);
  const plan::TransferGraph two =
      schedule_family("knomial-tree").all_reduces({topology, router, {}}).back();
  std::map<Rank, int> into_rank;
  std::map<std::string, int> into_rack;
  for (const plan::Transfer& t : two.transfers()) {
    ++into_rank[t.dst];
    const std::string& from = topology.node(topology.node_of(t.src)).rack;
    const std::string& to = topology.node(topology.node_of(t.dst)).rack;
    into_rack[to] += from != to ? 1 : 0;
  }
  // In quarters of the buffer.
  for (const auto& [rank, count] : into_rank) {
    CHECK(2 * count <= inside);
  }
  for (const auto& [rack, count] : into_rack) {
    CHECK(2 * count <= across);
  }
}

TEST_CASE("a k-nomial tree of 16 takes two rounds each way for 64 ranks on 8 hosts") {
  const Topology topology = cluster(1, 8, 8);
  topology::Router router(topology);
  const auto graphs = schedule_family("knomial-tree").all_reduces({topology, router, {}});
  REQUIRE_FALSE(graphs.empty());
  std::size_t least = SIZE_MAX;
  for (const auto& graph : graphs) {
    least = std::min<std::size_t>(least, plan::verify(graph, &topology).depth);
  }
  CHECK(least == 4);
}

TEST_CASE("recursive multiplying has a step for all, one for each level, one for each factor") {
  const auto mechanisms = [](const Topology& topology) {
    topology::Router router(topology);
    std::vector<std::string> result;
    for (const auto& graph :
         schedule_family("recursive-multiplying").all_reduces({topology, router, {}})) {
      const plan::VerifyReport report = plan::verify(graph, &topology);
      CHECK(report.problems == std::vector<std::string>{});
      result.push_back(fmt::format("{}: {} transfers, depth {}", graph.mechanism(),
                                   report.transfers, report.depth));
    }
    return result;
  };
  CHECK(mechanisms(cluster(1, 4, 4)) ==
        std::vector<std::string>{"4 × 4 in turn, one-shot each: 96 transfers, depth 2",
                                 "one-shot: 240 transfers, depth 1",
                                 "recursive doubling, 4 steps: 64 transfers, depth 4"});
  CHECK(mechanisms(cluster(1, 2, 1)) == std::vector<std::string>{"one-shot: 2 transfers, depth 1"});
  CHECK(mechanisms(uneven_cluster({2, 1}, 2)) ==
        std::vector<std::string>{"one-shot: 30 transfers, depth 1",
                                 "2 × 3 in turn, one-shot each: 18 transfers, depth 2"});
}

TEST_CASE("each rank of a ring sends to one neighbour, and twice (n-1)/n of the buffer") {
  const Topology topology = cluster(2, 2, 2);
  topology::Router router(topology);
  const plan::TransferGraph graph = schedule_family("ring").all_reduce({topology, router, {}});
  std::vector<std::set<std::uint32_t>> neighbours(topology.rank_count());
  std::vector<std::size_t> sent(topology.rank_count());
  for (const plan::Transfer& t : graph.transfers()) {
    neighbours[t.src.index()].insert(t.dst.value());
    ++sent[t.src.index()];
  }
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    CHECK(neighbours[r].size() == 1);
    CHECK(sent[r] == 2 * (topology.rank_count() - 1));
  }
}

TEST_CASE("a hierarchical schedule crosses racks with 2(k-1)/k of the buffer per rack") {
  const Topology topology = cluster(2, 3, 1);
  topology::Router router(topology);
  const plan::TransferGraph graph =
      schedule_family("hierarchical").all_reduce({topology, router, {}});
  constexpr std::int64_t kElements = 6000;
  std::int64_t across = 0;
  for (const plan::Transfer& t : graph.transfers()) {
    const auto rack = [&](Rank r) { return topology.node(topology.node_of(r)).rack; };
    if (rack(t.src) == "rack0" && rack(t.dst) == "rack1") {
      across += graph.range(t, kElements).size();
    }
  }
  CHECK(across == kElements);  // half of the buffer to be summed, half of the sums: 2(2-1)/2 = 1
}

TEST_CASE("racks of several sizes sum exactly, and share what crosses evenly among their hosts") {
  struct Case {
    std::vector<int> racks;
    double most;  // sent across by a host, over its share of its rack's
  };
  // The last has 7 · 5 · 3 lines, which are too many.
  const Case given = GENERATE(Case{{3, 1}, 1}, Case{{1, 2, 5}, 1}, Case{{7, 3}, 1}, Case{{4, 6}, 1},
                              Case{{7, 5, 3}, 1.08});
  const Topology topology = uneven_cluster(given.racks, 1);
  CAPTURE(given.racks);
  topology::Router router(topology);
  const ScheduleFamily& family = schedule_family("hierarchical");
  std::vector<TierCodecs> all;
  for (const char* inside : {"none", "fp16", "int8"}) {
    for (const char* across : {"none", "fp16", "int8"}) {
      all.push_back({plan::parse_codec(inside), plan::parse_codec(across)});
    }
  }
  int refused = 0;
  for (const TierCodecs& codecs : all) {
    if (family.refusal(topology, codecs)) {
      ++refused;
      continue;
    }
    const plan::TransferGraph graph = family.all_reduce({topology, router, codecs});
    CHECK(graph.transfers().size() == family.graph_size(topology).transfers);
    const plan::VerifyReport report = plan::verify(graph, &topology);
    CAPTURE(report.problems);
    CHECK(report.ok());
    constexpr std::int64_t kElements = 105'000;
    const auto buffers = execute(graph, kElements);
    for (const auto& buffer : buffers) {
      REQUIRE(buffer == buffers[0]);
    }
    const auto ranks = static_cast<float>(graph.rank_count());
    CHECK(buffers[0][0] == ranks * (ranks + 1) / 2);
    std::vector<std::int64_t> across(graph.rank_count());
    for (const plan::Transfer& t : graph.transfers()) {
      const auto rack = [&](Rank r) { return topology.node(topology.node_of(r)).rack; };
      if (rack(t.src) != rack(t.dst)) {
        across[t.src.index()] += graph.range(t, kElements).size();
      }
    }
    const auto racks = static_cast<double>(given.racks.size());
    std::size_t rank = 0;
    for (const int hosts : given.racks) {
      for (int h = 0; h < hosts; ++h, ++rank) {
        const double share = 2 * (racks - 1) / racks * kElements / hosts;
        CHECK(static_cast<double>(across[rank]) <= 1.001 * given.most * share);
      }
    }
  }
  // With a rank that has no group inside, a lossy codec there has to be the one across.
  const bool has_single = std::count(given.racks.begin(), given.racks.end(), 1) > 0;
  CHECK(refused == (has_single ? 4 : 0));
}

TEST_CASE("one odd rack neither multiplies the transfers nor what they wait for") {
  std::vector<int> racks(64, 8);
  racks[40] = 7;
  const Topology odd = uneven_cluster(racks, 1);
  const Topology even = uneven_cluster(std::vector<int>(64, 8), 1);
  const ScheduleFamily& family = schedule_family("hierarchical");
  CHECK(family.graph_size(odd).transfers <= family.graph_size(even).transfers * 3 / 2);
  topology::Router router(odd);
  const plan::TransferGraph graph = family.all_reduce({odd, router, {}});
  std::size_t dependencies = 0;
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    dependencies += graph.dependencies(TransferId(i)).size();
  }
  CHECK(dependencies <= 8 * graph.transfers().size());
}

TEST_CASE("a parameter server with a slow link serves what its link has room for") {
  if (!topology::LinearProgram::is_available()) {
    RACKRAIL_SKIP("without Clp");
  }
  const auto shares = [](Bandwidth first) {
    Topology topology("uneven");
    const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
    for (int i = 0; i < 4; ++i) {
      const std::string name = fmt::format("host{}", i);
      const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
      topology.add_rank(host);
      topology.add_duplex_link({.from = host, .to = hub, .bandwidth = i == 0 ? first : 100_Gbps});
    }
    topology::Router router(topology);
    const auto graph = schedule_family("parameter-server").all_reduce({topology, router, {}});
    const auto weights = graph.chunk_weights();
    CHECK(weights[1] == weights[3]);
    return weights[0] / (weights[0] + 3.0 * weights[1]);
  };
  // A link carries T·b_r = 1 + (n − 2)·w_r: T is 6/375 of a second for 75 and three times 100.
  CHECK(shares(75_Gbps) == Approx(0.1).epsilon(2e-3));
  CHECK(shares(25_Gbps) < 1e-3);  // the sums of the others are more than it has room for
  CHECK(shares(100_Gbps) == 0.25);
}

TEST_CASE("groups are hosts of several ranks, else racks, else single ranks") {
  CHECK(tier_groups(cluster(2, 2, 4)).size() == 4);
  CHECK(tier_groups(cluster(2, 2, 1)).size() == 2);
  CHECK(tier_groups(cluster(4, 1, 1)).size() == 4);
}

}  // namespace
}  // namespace rackrail::planner::schedules_test
