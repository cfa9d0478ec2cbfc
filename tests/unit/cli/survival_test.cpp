#include "cli/survival.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::cli {
namespace {

/// A model with one large tensor, for rates that a plan depends on.
plan::Workload one_tensor() {
  plan::Workload workload;
  workload.name = "one-tensor";
  workload.device_class = "";
  workload.profiled_batch = 32;
  workload.forward = 20_ms;
  workload.fixed_share = 0;
  workload.tensors.push_back({.name = "w", .elements = 1'000'000, .ready_gap = 40_ms});
  return workload;
}

}  // namespace

TEST_CASE("plans are for the rates that links have now, and slow ranks get fewer samples") {
  const topology::Topology cluster = test::two_racks();
  const plan::Workload workload = one_tensor();
  const auto costs = sim::make_cost_model(cluster, {});
  planner::PlannerOptions options;
  options.local_batch = 32;
  options.compare_baselines = false;
  const plan::Plan first = planner::make_plan(cluster, workload, *costs, options);
  SurvivalPlans plans(first, cluster, workload, 5_s);
  const std::vector<Rank> all{Rank(0), Rank(1), Rank(2), Rank(3)};
  CHECK(plans.cluster_of(all).digest() == cluster.digest());
  CHECK(plans.step_time_of(first, all) == costs->step(first, workload).step_time);

  LinkId uplink;
  while (cluster.link(uplink).bandwidth != 4_GBps) {
    uplink = LinkId(uplink.index() + 1);
  }
  plans.set_condition({{uplink, Bandwidth(4'000'000)}}, {{Rank(1), 3.0}});
  const topology::Topology now = plans.cluster_of(all);
  CHECK(now.link(uplink).bandwidth == Bandwidth(4'000'000));
  CHECK(plans.step_time_of(first, all) > scaled(first.prediction.step_time, 2));
  const plan::Plan second = plans.plan_for(all);
  CHECK(second.cluster_digest == now.digest());
  CHECK(second.batch.global_batch() == first.batch.global_batch());
  // A third of what the others have: 3 · 38 + 13 = 127, and one is left over.
  CHECK(second.batch.local_batch[1] == 13);
  CHECK(std::ranges::max(second.batch.local_batch) == 39);
  // The plan of before lets the others wait for the slow one: so does its step, where it is of it
  // that is asked, and the seat of it, not its rank among those who are left.
  plans.set_condition({}, {{Rank(1), 3.0}});
  CHECK(plans.step_time_of(first, all) > scaled(first.prediction.step_time, 2));
  CHECK(plans.step_time_of(second, all) < scaled(plans.step_time_of(first, all), 0.6));
  const std::vector<Rank> without_first{Rank(1), Rank(2), Rank(3)};
  plans.set_condition({}, {});
  const plan::Plan even = plans.plan_for(without_first);
  const Duration step_of_even = plans.step_time_of(even, without_first);
  plans.set_condition({}, {{Rank(0), 3.0}});
  CHECK(plans.step_time_of(even, without_first) == step_of_even);
  plans.set_condition({}, {{Rank(1), 3.0}});
  CHECK(plans.step_time_of(even, without_first) > scaled(step_of_even, 2));
  plans.set_condition({{uplink, Bandwidth(4'000'000)}}, {{Rank(1), 3.0}});
  // A lost rank leaves three, of which one is slow.
  const plan::Plan third = plans.plan_for({Rank(0), Rank(1), Rank(3)});
  CHECK(third.batch.global_batch() == first.batch.global_batch());
  CHECK(third.batch.local_batch[1] < third.batch.local_batch[0] / 2);
  plans.set_condition({}, {});
  CHECK(plans.plan_for(all).batch.local_batch == first.batch.local_batch);

  plans.keep_schedule("parameter-server");
  const plan::Plan served = plans.plan_for({Rank(0), Rank(2), Rank(3)});
  for (const plan::Bucket& bucket : served.buckets) {
    CHECK(served.schedules.at(bucket.schedule).name() == "parameter-server");
  }
}

}  // namespace rackrail::cli
