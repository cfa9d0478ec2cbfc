#include "cli/survival.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::cli::survival_test {
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

/// In FP32, 32 samples by rank.
plan::Plan plan_of_rings(const topology::Topology& cluster, const plan::Workload& workload) {
  planner::PlannerOptions options;
  options.local_batch = 32;
  options.compare_baselines = false;
  options.codec = plan::Codec{};
  options.schedule = "ring";
  return planner::make_plan(cluster, workload, *sim::make_cost_model(cluster, {}), options);
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
  plans.set_condition({{uplink, Bandwidth(4'000'000)}}, {{Rank(1), {{32, 3.0}}}});
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
  plans.set_condition({}, {{Rank(1), {{32, 3.0}}}});
  CHECK(plans.step_time_of(first, all) > scaled(first.prediction.step_time, 2));
  CHECK(plans.step_time_of(second, all) < scaled(plans.step_time_of(first, all), 0.6));
  const std::vector<Rank> without_first{Rank(1), Rank(2), Rank(3)};
  plans.set_condition({}, {});
  const plan::Plan even = plans.plan_for(without_first);
  const Duration step_of_even = plans.step_time_of(even, without_first);
  plans.set_condition({}, {{Rank(0), {{32, 3.0}}}});
  CHECK(plans.step_time_of(even, without_first) == step_of_even);
  plans.set_condition({}, {{Rank(1), {{32, 3.0}}}});
  CHECK(plans.step_time_of(even, without_first) > scaled(step_of_even, 2));
  plans.set_condition({{uplink, Bandwidth(4'000'000)}}, {{Rank(1), {{32, 3.0}}}});
  // A lost rank leaves three, of which one is slow.
  const plan::Plan third = plans.plan_for({Rank(0), Rank(1), Rank(3)});
  CHECK(third.batch.global_batch() == first.batch.global_batch());
  CHECK(third.batch.local_batch[1] < third.batch.local_batch[0] / 2);
  plans.set_condition({}, {});
  CHECK(plans.plan_for(all).batch.local_batch == first.batch.local_batch);

  // What does not depend on its batch is most of what it takes: it gets as few as that wants. Its
  // 32 samples take 240 ms and 13 take 164: 112 ms and 4 ms for each; the others' take 1.875 ms.
  plans.set_condition({}, {{Rank(1), {{32, 4.0}, {13, 164. / 24.375}}}});
  const plan::Plan refined = plans.plan_for(all);
  CHECK(refined.batch.global_batch() == first.batch.global_batch());
  CHECK(refined.batch.local_batch[1] == 1);
  CHECK(plans.step_time_of(refined, all) < plans.step_time_of(second, all));
  CHECK(plans.step_time_of(second, all) >= 164_ms);
  plans.set_condition({}, {{Rank(1), {{32, 1.5}, {20, (90. - 12 * 2.5) / 37.5}}}});
  // 90 ms for 32 samples and 60 for 20: 10 ms and 2.5 for each, so 66 ms for 22.4 and the
  // others' 35.2.
  CHECK(plans.plan_for(all).batch.local_batch[1] == 23);

  plans.set_condition({}, {});
  CHECK(plans.profile(Rank(1)).per_sample == Approx(0.060 / 32));
  CHECK(plans.profile(Rank(1)).fixed == Approx(0).margin(1e-9));

  plans.keep_schedule("parameter-server");
  const plan::Plan served = plans.plan_for({Rank(0), Rank(2), Rank(3)});
  for (const plan::Bucket& bucket : served.buckets) {
    CHECK(served.schedules.at(bucket.schedule).name() == "parameter-server");
  }
}

TEST_CASE(
    "what uses links that have changed is planned again, and everything where that is no use") {
  const topology::Topology cluster = test::two_racks();
  const plan::Workload workload = one_tensor();
  const plan::Plan first = plan_of_rings(cluster, workload);
  SurvivalPlans plans(first, cluster, workload, 60_s);
  const std::vector<Rank> all{Rank(0), Rank(1), Rank(2), Rank(3)};
  std::map<LinkId, Bandwidth> slow;
  for (std::size_t i = 0; i < cluster.link_count(); ++i) {
    if (cluster.link(LinkId(i)).bandwidth == 4_GBps) {
      slow[LinkId(i)] = Bandwidth(40'000'000);
    }
  }
  REQUIRE(!slow.empty());
  plans.set_condition(slow, {});
  const SurvivalPlans::Weighed found = plans.weigh(first, all);
  REQUIRE(found.plan.has_value());
  CHECK(found.plan->cluster_digest == plans.cluster_of(all).digest());
  CHECK(found.better < scaled(found.kept, 0.97));
  CHECK(found.better == plans.step_time_of(*found.plan, all));
  CHECK(found.better <= scaled(plans.step_time_of(plans.plan_for(all), all), 1.03));
  REQUIRE(found.changes.has_value());
  CHECK(found.changes->is_incremental);
  CHECK(found.changes->touched_buckets == first.buckets.size());
  REQUIRE(found.changes->gradients.size() == 1);
  CHECK(found.changes->gradients[0].gradients == workload.gradient_bytes());
  CHECK(found.changes->gradients[0].before == "ring fp32");
  CHECK(found.changes->gradients[0].after != "ring fp32");
  CHECK_THAT(found.changes->text(), Catch::StartsWith("planned again in ") &&
                                        Catch::Contains("1 of 1 buckets touched: 3.81 MiB by ") &&
                                        Catch::EndsWith(" instead of ring fp32"));

  // And back, from the plan that is in use then.
  plans.set_condition({}, {});
  const SurvivalPlans::Weighed back = plans.weigh(*found.plan, all);
  CHECK(back.better <= back.kept);
  CHECK(back.better >= scaled(back.kept, 1 - SurvivalPlans::kWorthIt));
  CHECK_FALSE(back.plan.has_value());
  CHECK_FALSE(back.changes.has_value());
  CHECK_THAT(back.text(), Catch::StartsWith("plan kept: "));
  // The same where no link has changed since: it stays.
  const SurvivalPlans::Weighed same = plans.weigh(first, all);
  CHECK_FALSE((same.changes && same.changes->is_incremental));

  // Of a plan for rates that nobody has told, nothing is known to be untouched.
  SurvivalPlans others(first, cluster, workload, 60_s);
  plan::Plan unknown = first;
  unknown.cluster_digest = "another";
  others.set_condition(slow, {});
  const SurvivalPlans::Weighed anew = others.weigh(unknown, all);
  REQUIRE(anew.plan.has_value());
  CHECK_FALSE(anew.changes->is_incremental);
  CHECK_THAT(anew.changes->text(), Catch::StartsWith("everything planned anew in "));

  // Servers stay servers: what is found for a part of the plan must not bring in another family.
  SurvivalPlans of_rings(first, cluster, workload, 60_s);
  of_rings.keep_schedule("ring");
  of_rings.set_condition(slow, {});
  const SurvivalPlans::Weighed rings = of_rings.weigh(first, all);
  // No other ring is better, as each crosses the uplinks as often.
  CHECK_FALSE(rings.plan.has_value());
  CHECK(rings.kept == found.kept);
  CHECK(rings.better >= scaled(rings.kept, 1 - SurvivalPlans::kWorthIt));
  for (const plan::TransferGraph& graph : of_rings.plan_for(all).schedules) {
    CHECK(graph.name() == "ring");
  }
}

TEST_CASE("a slow rank's samples go to the others by the same schedules") {
  const topology::Topology cluster = test::two_racks();
  const plan::Workload workload = one_tensor();
  planner::PlannerOptions options;
  options.local_batch = 32;
  options.compare_baselines = false;
  const plan::Plan first =
      planner::make_plan(cluster, workload, *sim::make_cost_model(cluster, {}), options);
  SurvivalPlans plans(first, cluster, workload, 60_s);
  plans.set_condition({}, {{Rank(1), {{32, 3.0}}}});
  const std::vector<Rank> all{Rank(0), Rank(1), Rank(2), Rank(3)};
  const SurvivalPlans::Weighed found = plans.weigh(first, all);
  REQUIRE(found.plan.has_value());
  CHECK(found.plan->batch.local_batch == plans.plan_for(all).batch.local_batch);
  REQUIRE(found.changes.has_value());
  CHECK(found.changes->is_incremental);
  CHECK(found.changes->gradients.empty());
  CHECK(found.changes->samples == std::vector<std::int64_t>{39, 13, 38, 38});
  CHECK_THAT(found.changes->text(),
             Catch::EndsWith("samples by rank 39, 13, 38, 38 instead of 32, 32, 32, 32"));
}

TEST_CASE("after a loss it is said what all gradients go by then") {
  const topology::Topology cluster = test::two_racks();
  const plan::Workload workload = one_tensor();
  const plan::Plan first = plan_of_rings(cluster, workload);
  SurvivalPlans plans(first, cluster, workload, 60_s);
  const SurvivalPlans::Other next = plans.planned_anew(first, {Rank(0), Rank(2), Rank(3)});
  CHECK(next.plan.rank_count() == 3);
  CHECK_FALSE(next.changes.is_incremental);
  CHECK(next.changes.buckets_before == first.buckets.size());
  CHECK(next.changes.buckets == next.plan.buckets.size());
  CHECK(next.changes.samples_before == std::vector<std::int64_t>(4, 32));
  CHECK(next.changes.samples.size() == 3);
  Bytes moved;
  for (const GradientChange& change : next.changes.gradients) {
    CHECK(change.before == "ring fp32");
    CHECK(change.after != change.before);
    moved += change.gradients;
  }
  CHECK(moved <= workload.gradient_bytes());
}

}  // namespace rackrail::cli::survival_test
