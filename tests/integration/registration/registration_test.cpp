// A schedule, a reader and a transport that the shipped lists do not have, added by one line each.
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/planner.hpp"
#include "runtime/transport.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::registration_test {
namespace {

topology::Topology read_pairs() {
  return topology::read_cluster_text("three.pairs", "pairs\na b\nb c\n").topology;
}

TEST_CASE("a reader is added by its file and a line") {
  CHECK(topology::readers().back()->format() == "pairs");
  const topology::Topology topology = read_pairs();
  CHECK(topology.rank_count() == 3);
  CHECK(topology.link_count() == 4);
  topology::ReadOptions options;
  options.format = "a-format-of-nobody";
  CHECK_THROWS_WITH(topology::read_cluster_text("x", "pairs\na b\n", options),
                    Catch::Contains("pairs"));
}

TEST_CASE("a schedule is added by its file and a line, and is planned with") {
  CHECK(planner::schedule_families().back()->name() == "star");
  const topology::Topology topology = read_pairs();
  plan::Workload workload;
  workload.name = "one tensor";
  workload.device_class = "cpu";
  workload.profiled_batch = 32;
  workload.forward = 1_ms;
  workload.tensors.push_back({.name = "weight", .elements = 1000, .ready_gap = 1_ms});
  const auto cost_model = sim::make_cost_model(topology, {});
  planner::PlannerOptions options;
  options.schedule = "star";
  options.local_batch = 32;
  const plan::Plan plan = planner::make_plan(topology, workload, *cost_model, options);
  REQUIRE(plan.schedules.size() == 1);
  // Two ranks send to the first, which sends the sum to both.
  CHECK(plan.schedules[0].transfers().size() == 4);
  CHECK(plan::verify(plan.schedules[0], &topology).problems == std::vector<std::string>{});
}

TEST_CASE("a transport is added by its file and a line") {
  const std::vector<runtime::TransportKind> kinds = runtime::transport_kinds();
  CHECK(kinds.back().name == "post-office");
  CHECK(kinds.back().unavailable == "the post office is closed");
  CHECK_THROWS_WITH(runtime::make_transport("post-office"), "the post office is closed");
  CHECK_THROWS_WITH(runtime::make_transport("pigeons"), Catch::Contains("post-office"));
}

}  // namespace
}  // namespace rackrail::registration_test
