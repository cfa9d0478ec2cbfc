#include "cli/local_prediction.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "plan/verifier.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "topology/queries.hpp"

namespace rackrail::cli::local_prediction_test {
namespace {

constexpr std::size_t kWorkers = 4;

topology::Topology cluster() {
  topology::Topology topology("cluster");
  const NodeId tor = topology.add_node({.name = "tor", .kind = topology::NodeKind::kTor});
  for (std::size_t i = 0; i < kWorkers; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host =
        topology.add_node({.name = name, .kind = topology::NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link(
        {.from = host, .to = tor, .bandwidth = 40_Gbps, .latency = 10_us, .tier = "host"});
  }
  return topology;
}

plan::Workload model(std::int64_t elements, Duration compute) {
  plan::Workload workload;
  workload.name = "model";
  workload.device_class = "cpu";
  workload.profiled_batch = 32;
  workload.tensors = {{"weight", elements, scaled(compute, 0.5)}};
  workload.forward = scaled(compute, 0.5);
  return workload;
}

plan::Plan plan_for(const plan::Workload& workload) {
  const topology::Topology topology = cluster();
  const auto cost_model = sim::make_cost_model(topology, {});
  return planner::make_naive_plan(topology, workload, *cost_model, {});
}

// A machine on which only what a test is about costs anything.
plan::Calibration machine(std::size_t cores) {
  constexpr Bandwidth kFast(1'000'000'000'000'000);
  plan::Calibration calibration;
  calibration.cores = cores;
  calibration.core_bandwidth = 1_GBps;
  calibration.rates.codecs.fill({kFast, kFast});
  calibration.rates.reduce = kFast;
  return calibration;
}

TEST_CASE("on another topology a plan is the same transfers without their routes") {
  const plan::Workload workload = model(1'000'000, 10_ms);
  const plan::Plan made = plan_for(workload);
  const topology::Topology here = local_machine(machine(2), kWorkers);
  const plan::Plan moved = on_other_topology(made, here);
  CHECK(moved.cluster_digest == here.digest());
  CHECK(plan::verify(moved, &here, &workload).problems == std::vector<std::string>{});
  REQUIRE(moved.schedules.size() == made.schedules.size());
  for (std::size_t s = 0; s < made.schedules.size(); ++s) {
    const plan::TransferGraph& before = made.schedules[s];
    const plan::TransferGraph& after = moved.schedules[s];
    REQUIRE(after.transfers().size() == before.transfers().size());
    CHECK(after.name() == before.name());
    CHECK(after.chunk_count() == before.chunk_count());
    for (std::size_t i = 0; i < before.transfers().size(); ++i) {
      const TransferId id(i);
      CHECK(after.transfer(id).src == before.transfer(id).src);
      CHECK(after.transfer(id).dst == before.transfer(id).dst);
      CHECK(after.transfer(id).chunk_begin == before.transfer(id).chunk_begin);
      CHECK(after.transfer(id).chunk_count == before.transfer(id).chunk_count);
      CHECK(after.transfer(id).op == before.transfer(id).op);
      CHECK(after.routes()[after.transfer(id).route.index()].empty());
      const auto wanted = before.dependencies(id);
      const auto found = after.dependencies(id);
      CHECK(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end()));
    }
  }
}

TEST_CASE("workers that outnumber the cores take turns at computing") {
  const plan::Workload workload = model(1024, 100_ms);
  const plan::Plan made = plan_for(workload);
  const auto [cores, expected] =
      GENERATE(table<std::size_t, double>({{1, 0.4}, {2, 0.2}, {4, 0.1}, {8, 0.1}}));
  INFO(cores << " cores");
  const sim::StepResult result = predict_here(made, workload, machine(cores));
  CHECK(result.estimate.step_time.seconds() == Approx(expected).epsilon(0.01));
}

TEST_CASE("messages take the cores' time: a ring moves 2(n - 1) times the gradients") {
  constexpr std::int64_t kElements = 4 << 20;
  const plan::Workload workload = model(kElements, 2_us);
  const plan::Plan made = plan_for(workload);
  const std::size_t cores = GENERATE(1, 2);
  const sim::StepResult result = predict_here(made, workload, machine(cores));
  const double seconds = 2 * (kWorkers - 1) * 4.0 * kElements / (1e9 * static_cast<double>(cores));
  CHECK(result.estimate.step_time.seconds() == Approx(seconds).epsilon(0.02));
  CHECK(result.estimate.sync_share > 0.99);
}

TEST_CASE("each message costs its overhead on top of its bytes") {
  const plan::Workload workload = model(4 << 20, 2_us);
  const plan::Plan made = plan_for(workload);
  plan::Calibration calibration = machine(1);
  const Duration without = predict_here(made, workload, calibration).estimate.step_time;
  calibration.message_overhead = 1_ms;
  const Duration with = predict_here(made, workload, calibration).estimate.step_time;
  // A ring's 2(n - 1) steps follow each other, so that at least their messages' costs add up.
  CHECK((with - without).seconds() >= 2 * (kWorkers - 1) * 1e-3 * 0.99);
}

TEST_CASE("the timeline of the prediction shows every worker") {
  const plan::Workload workload = model(1 << 20, 10_ms);
  const sim::StepResult result = predict_here(plan_for(workload), workload, machine(2));
  for (std::size_t rank = 0; rank < kWorkers; ++rank) {
    const std::string track = fmt::format("rank {} compute", rank);
    INFO(track);
    CHECK(std::any_of(result.records.timeline.begin(), result.records.timeline.end(),
                      [&](const plan::TimelineEvent& event) { return event.track == track; }));
  }
}

TEST_CASE("a machine is its cores, shared by all workers") {
  plan::Calibration calibration = machine(2);
  const topology::Topology here = local_machine(calibration, 5);
  REQUIRE(here.rank_count() == 5);
  CHECK_NOTHROW(here.require_connected());
  topology::Router router(here);
  const auto shared = here.processor_of(Rank(0));
  REQUIRE(shared.has_value());
  CHECK(here.link(*shared).bandwidth == calibration.core_bandwidth * 2);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(here.processor_of(Rank(i)) == shared);
    for (std::size_t j = 0; j < 5; ++j) {
      if (i != j) {
        const topology::Route& route = router.route(Rank(i), Rank(j));
        CHECK(std::count(route.begin(), route.end(), *shared) == 1);
        CHECK(topology::route_latency(here, route) == calibration.latency);
      }
    }
  }
}

}  // namespace
}  // namespace rackrail::cli::local_prediction_test
