// What a plan for very many ranks predicts, against the simulator without tolerance.
#include <catch2/catch.hpp>

#include "planner/groups/many_ranks.hpp"
#include "planner/planner.hpp"
#include "planner/tuning/candidates.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::exact_prediction_test {
namespace {

plan::Workload model() { return plan::read_workload("resnet-50", topology::configs_folder()); }

TEST_CASE("a plan for very many ranks predicts what simulating it says, to the picosecond") {
  // Three unequal racks under few uplinks, so that flows share links and end at different times.
  const topology::Topology topology = test::clos({30, 32, 34}, 4);
  REQUIRE(topology.rank_count() == kVeryManyRanks);
  const plan::Workload workload = model();
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options;
  options.schedule = "halving-doubling";
  options.codec = plan::Codec{};
  options.bucket_size = 25_MiB;
  options.compare_baselines = false;
  const plan::Plan plan = make_plan(topology, workload, *costs, options);
  const plan::StepEstimate exact = sim::simulate_step(plan, workload, topology, {}).estimate;
  CHECK(plan.prediction.step_time == exact.step_time);
  CHECK(plan.prediction.sync_share == exact.sync_share);
  CHECK(plan.prediction.gap == Approx(exact.step_time / plan.prediction.bound - 1));
  // The search itself compares times that are only nearly so.
  const Duration nearly = costs->step(plan, workload).step_time;
  CHECK(nearly != exact.step_time);
  CHECK(nearly / exact.step_time == Approx(1).epsilon(0.01));

  const plan::Plan naive = make_naive_plan(topology, workload, *costs, options);
  CHECK(naive.prediction.step_time ==
        sim::simulate_step(naive, workload, topology, {}).estimate.step_time);
}

TEST_CASE("where every step is exact, there is no second estimate") {
  const topology::Topology topology = test::two_racks();
  const plan::Workload workload = model();
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options;
  options.schedule = "ring";
  options.codec = plan::Codec{};
  const plan::Plan plan = make_plan(topology, workload, *costs, options);
  CHECK_FALSE(costs->exact_step(plan, workload).has_value());
  CHECK(plan.prediction.step_time == costs->step(plan, workload).step_time);
}

}  // namespace
}  // namespace rackrail::planner::exact_prediction_test
