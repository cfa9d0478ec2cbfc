// Plans of devices whose messages are staged in host memory.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim::host_staging_test {
namespace {

using plan::TransferGraph;
using topology::Topology;

/// How many messages of a schedule leave a host, and how many slices are copied out and in.
struct Copies {
  std::size_t messages = 0;
  std::size_t out = 0;
  std::size_t in = 0;
};

Copies copies_of(const TransferGraph& graph, const Topology& topology, std::int64_t elements,
                 std::int64_t slice) {
  SimulationOptions options;
  options.record_timeline = true;
  options.record_flows = true;
  const auto result = simulate_collective(graph, elements, slice, topology, options);
  const auto host = [&](Rank rank) { return topology.node(topology.node_of(rank)).host; };
  Copies copies;
  for (const FlowRecord& flow : result.records.flow_records) {
    copies.messages += host(flow.src) != host(flow.dst) ? 1 : 0;
  }
  for (const plan::TimelineEvent& event : result.records.timeline) {
    copies.out += event.track.ends_with("copies to host memory") ? 1 : 0;
    copies.in += event.track.ends_with("copies from host memory") ? 1 : 0;
  }
  return copies;
}

TEST_CASE("whatever the schedule and the codec, a message is copied once at each end") {
  const Topology topology =
      test::staged_gpus({"a", "a", "b", "b", "c", "c", "d", "d"}, 1'000'000'000);
  const plan::Codec codec = GENERATE(plan::Codec{}, plan::Codec{.kind = plan::CodecKind::kFp16},
                                     plan::Codec{.kind = plan::CodecKind::kInt8Block});
  for (const auto& family : planner::schedule_families()) {
    if (family->refusal(topology, {codec, codec}) || family->name() == "in-network") {
      continue;
    }
    CAPTURE(family->name(), plan::to_string(codec));
    topology::Router router(topology);
    const TransferGraph graph = family->all_reduce({topology, router, {codec, codec}});
    const Copies copies = copies_of(graph, topology, 200'000, 5'000);
    CHECK(copies.messages > 0);
    CHECK(copies.out == copies.messages);
    CHECK(copies.in == copies.messages);
  }
}

TEST_CASE("steps of a staged plan leave nothing behind, and say how long was copied") {
  const Topology topology = test::staged_gpus({"a", "b", "c"}, 1'000'000'000);
  plan::Workload workload;
  workload.name = "one gradient";
  workload.tensors = {{"w", 300'000, 1_ms}};
  workload.forward = 1_ms;
  workload.optimizer = 1_ms;
  planner::PlannerOptions options;
  options.schedule = "parameter-server";
  options.codec = plan::Codec{.kind = plan::CodecKind::kFp16};
  options.bucket_size = Bytes(1'200'000);
  const auto cost_model = make_cost_model(topology, {});
  const plan::Plan plan = planner::make_plan(topology, workload, *cost_model, options);
  SimulationOptions steps;
  steps.steps = 4;
  steps.report = {.kind = StepChoice::Kind::kNumber, .number = 0};
  const StepResult result = simulate_step(plan, workload, topology, steps);
  REQUIRE(result.steps.size() == 4);
  // Each rank sends two thirds of its gradient and takes in two thirds of the mean, in FP16.
  REQUIRE(result.copies.has_value());
  CHECK(result.copies->seconds() > 4.0 / 3 * 600'000 / 1e9);
  CHECK_FALSE(simulate_step(plan, workload, test::staged_gpus({"a", "b", "c"}, 0), steps)
                  .copies.has_value());
}

}  // namespace
}  // namespace rackrail::sim::host_staging_test
