// Which link the messages of a critical path waited for.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/simulator.hpp"

namespace rackrail::sim::binding_links_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr std::int64_t kElements = 1'000'000;

/// Hosts 0 and 1 on one switch, 2 and 3 on the other, 10 GB/s each; one cable between the switches.
Topology two_racks(Bandwidth between) {
  Topology topology("two racks");
  const NodeId left = topology.add_node({.name = "left", .kind = NodeKind::kTor});
  const NodeId right = topology.add_node({.name = "right", .kind = NodeKind::kTor});
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = i < 2 ? left : right, .bandwidth = 10_GBps});
  }
  topology.add_duplex_link({.from = left, .to = right, .bandwidth = between});
  return topology;
}

/// The link of the last message on the critical path, where each pair is one message.
std::string binding_link(const Topology& topology, const std::vector<std::pair<int, int>>& pairs,
                         SimulationOptions options = {}) {
  plan::Workload workload;
  workload.tensors = {{"all", kElements, 1_ms}};
  plan::Plan plan;
  plan.workload_digest = workload.digest();
  plan.rank_names = {"host0", "host1", "host2", "host3"};
  plan::TransferGraph graph("messages", plan::Collective::kAllReduce, 4, {1});
  for (const auto& [src, dst] : pairs) {
    graph.add_transfer({.src = Rank(src), .dst = Rank(dst)}, {});
  }
  plan.schedules = {graph};
  plan.buckets = {{.tensors = {0}, .elements = kElements, .slice_elements = kElements}};
  plan.batch.local_batch = {1, 1, 1, 1};
  const StepResult result = simulate_step(plan, workload, topology, options);
  const auto piece =
      std::find_if(result.records.critical_path.rbegin(), result.records.critical_path.rend(),
                   [](const PathPiece& one) { return one.kind == "wire"; });
  REQUIRE(piece != result.records.critical_path.rend());
  REQUIRE(piece->link.has_value());
  const std::string name = topology.link_name(*piece->link);
  CHECK_THAT(piece->what, Catch::EndsWith(" on " + name));
  return name;
}

TEST_CASE("a wide cable that messages share binds them, not their hosts' narrower ones") {
  const NetworkLevel network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  CHECK(binding_link(two_racks(12_GBps), {{0, 2}, {1, 3}}, {.network = network}) == "left→right");
  CHECK(binding_link(two_racks(9_GBps), {{0, 2}}, {.network = network}) == "left→right");
  CHECK(binding_link(two_racks(40_GBps), {{0, 2}}, {.network = network}) == "host0→left");
}

TEST_CASE("many senders wait for their receiver's cable") {
  CHECK(binding_link(two_racks(40_GBps), {{0, 3}, {1, 3}, {2, 3}}) == "right→host3");
}

TEST_CASE("what has become slow binds, and so do others' messages") {
  const Topology topology = two_racks(40_GBps);
  SimulationOptions options;
  options.disturbances.capacity = {
      {.at = Duration(), .link = LinkId(5), .bandwidth = Bandwidth(1'000'000'000)}};
  REQUIRE(topology.link_name(LinkId(5)) == "right→host2");
  CHECK(binding_link(topology, {{0, 2}}, options) == "right→host2");
  options.disturbances.capacity.clear();
  // Others take eight tenths of the cable between.
  const Topology narrow = two_racks(11_GBps);
  options.disturbances.background = {
      {.src = Rank(1), .dst = Rank(3), .message = Bytes(100'000'000), .cap = 9_GBps}};
  CHECK(binding_link(narrow, {{0, 2}}, options) == "left→right");
}

}  // namespace
}  // namespace rackrail::sim::binding_links_test
