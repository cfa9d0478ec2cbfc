#include "planner/pipeline/recode.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/graphs.hpp"

namespace rackrail::planner::recode_test {
namespace {

TEST_CASE("a graph with other codecs is the one that its family makes for them") {
  const topology::Topology topology = GENERATE(test::boxes(3, 2), test::two_racks(),
                                               test::clos({2, 3, 1}, 2), test::grid(3, 4, true));
  topology::Router router(topology);
  int compared = 0;
  for (const auto& family : schedule_families()) {
    if (family->depends_on_codecs() || family->refusal(topology, {}).has_value()) {
      continue;
    }
    const std::vector<plan::TransferGraph> plain = family->all_reduces({topology, router, {}});
    for (const plan::Codec& inside : plan::known_codecs()) {
      for (const plan::Codec& across : plan::known_codecs()) {
        const TierCodecs codecs{inside, across};
        if (family->refusal(topology, codecs).has_value()) {
          continue;
        }
        CAPTURE(topology.name(), family->name(), plan::to_string(inside), plan::to_string(across));
        const auto made = family->all_reduces({topology, router, codecs});
        REQUIRE(made.size() == plain.size());
        for (std::size_t i = 0; i < made.size(); ++i) {
          test::check_same_graph(recoded(plain[i], topology, codecs), made[i]);
          ++compared;
        }
      }
    }
  }
  CHECK(compared > 10);
}

TEST_CASE("rates are kept where one codec serves all, as only then shares of links stay the same") {
  const topology::Topology topology = test::two_racks();
  plan::TransferGraph graph("rated", plan::Collective::kAllReduce, topology.rank_count(), {1});
  const RouteId route = graph.add_route({LinkId(0)}, 3_GBps);
  const plan::Codec none;
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  CHECK(recoded(graph, topology, {none, none}).rate(route) == 3_GBps);
  CHECK(recoded(graph, topology, {fp16, fp16}).rate(route) == 3_GBps);
  CHECK_FALSE(recoded(graph, topology, {none, fp16}).has_rates());
}

TEST_CASE("what a graph takes is known before it is made") {
  const topology::Topology topology =
      GENERATE(test::boxes(1, 2), test::boxes(5, 2), test::two_racks(), test::clos({3, 3, 3}, 2));
  topology::Router router(topology);
  for (const auto& family : schedule_families()) {
    if (family->refusal(topology, {}).has_value()) {
      continue;
    }
    const GraphSize size = family->graph_size(topology);
    if (size.transfers == 0) {
      continue;
    }
    CAPTURE(topology.rank_count(), family->name());
    const plan::TransferGraph graph = family->all_reduce({topology, router, {}});
    std::uint64_t movements = 0;
    for (const plan::Transfer& transfer : graph.transfers()) {
      movements += transfer.chunk_count;
    }
    CHECK(size.transfers == graph.transfers().size());
    CHECK(size.movements == movements);
  }
}

TEST_CASE("families whose graphs grow with the square of the ranks are refused for very many") {
  // Hosts of three ranks on one switch; nothing is routed, so a large one costs nothing.
  topology::Topology topology("wide");
  const NodeId tor = topology.add_node({.name = "tor", .kind = topology::NodeKind::kTor});
  constexpr int kHosts = 1024;
  constexpr int kPerHost = 3;
  for (int h = 0; h < kHosts; ++h) {
    for (int g = 0; g < kPerHost; ++g) {
      const NodeId gpu = topology.add_node({.name = fmt::format("gpu{}.{}", h, g),
                                            .kind = topology::NodeKind::kGpu,
                                            .host = fmt::format("host{}", h)});
      topology.add_rank(gpu);
      topology.add_duplex_link({.from = gpu, .to = tor, .bandwidth = Bandwidth(1'000'000'000)});
    }
  }
  for (const char* name : {"ring", "parameter-server", "hierarchical", "hierarchical-ring"}) {
    CAPTURE(name);
    const ScheduleFamily& family = schedule_family(name);
    CHECK_FALSE(family.refusal(topology, {}).has_value());
    const auto refusal = graph_refusal(family, topology, {});
    REQUIRE(refusal.has_value());
    CHECK(refusal->find(std::to_string(family.graph_size(topology).transfers)) !=
          std::string::npos);
  }
  for (const char* name : {"double-binary-tree", "halving-doubling", "hierarchical-tree"}) {
    CAPTURE(name);
    CHECK_FALSE(graph_refusal(schedule_family(name), topology, {}).has_value());
  }
}

TEST_CASE("trees between groups are as deep as the logarithm of the number of groups") {
  const int groups = GENERATE(2, 3, 8, 13);
  const topology::Topology topology = test::boxes(groups, 8);
  topology::Router router(topology);
  const plan::TransferGraph graph =
      schedule_family("hierarchical-tree").all_reduce({topology, router, {}});
  const plan::VerifyReport report = plan::verify(graph, &topology);
  CAPTURE(groups, report.problems);
  CHECK(report.ok());
  std::size_t levels = 0;  // of the in-order tree below its root
  while ((std::size_t{1} << levels) < static_cast<std::size_t>(groups)) {
    ++levels;
  }
  CHECK(report.depth <= 2 * (levels + 1) + 2);
  CHECK(graph.chunk_count() == 16);
}

}  // namespace
}  // namespace rackrail::planner::recode_test
