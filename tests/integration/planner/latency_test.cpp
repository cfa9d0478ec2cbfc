// Small buffers on slow networks: an all-reduce takes hardly more than one latency.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/support/best_collective.hpp"
#include "topology/queries.hpp"

namespace rackrail::latency_test {
namespace {

/// CPU ranks behind one switch, any two of them so far apart.
topology::Topology behind_one_switch(int ranks, Duration apart) {
  topology::Topology topology("star");
  const NodeId middle = topology.add_node({.name = "switch", .kind = topology::NodeKind::kTor});
  for (int r = 0; r < ranks; ++r) {
    const std::string host = fmt::format("host{}", r);
    const NodeId node =
        topology.add_node({.name = host, .kind = topology::NodeKind::kCpu, .host = host});
    topology.add_rank(node);
    topology.add_duplex_link({.from = node,
                              .to = middle,
                              .bandwidth = 10_Gbps,
                              .latency = Duration(apart.picoseconds() / 2),
                              .tier = "nic"});
  }
  return topology;
}

TEST_CASE("a kibibyte is reduced in one latency, in place of there and back") {
  constexpr std::int64_t kElements = 256;
  const int ranks = GENERATE(2, 8);
  CAPTURE(ranks);
  const topology::Topology topology = behind_one_switch(ranks, 200_us);
  REQUIRE(topology::latency_bound(topology) == 200_us);
  const test::BestCollective best =
      test::best_collective(topology, plan::Collective::kAllReduce, kElements);
  CHECK(best.family == "recursive-multiplying");
  CHECK(best.found.graph->mechanism() == "one-shot");
  CHECK(best.time < 215_us);
}

TEST_CASE("large buffers are not sent whole to everybody") {
  const topology::Topology topology = behind_one_switch(8, 200_us);
  const test::BestCollective best =
      test::best_collective(topology, plan::Collective::kAllReduce, std::int64_t{1} << 24U);
  CHECK(best.family != "recursive-multiplying");
}

}  // namespace
}  // namespace rackrail::latency_test
