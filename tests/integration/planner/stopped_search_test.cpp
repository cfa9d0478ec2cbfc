// Searches that are stopped, by the number of times that they ask: what they have by then, what is
// shown beside it, and that one which is not stopped is the search without a budget.
#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/format.hpp"
#include "plan/verifier.hpp"
#include "planner/planner.hpp"
#include "planner/search/compare.hpp"
#include "planner/search/plan_report.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::stopped_search_test {
namespace {

/// Three boxes of 8 GPUs, each with one slow port, so that what crosses the ports is best encoded.
topology::Topology slow_ports() {
  const std::vector<int> one_port = {2, 0, 0, 0, 0, 0, 0, 0};
  return test::boxes_with_nics({one_port, one_port, one_port}, 1);
}

plan::Workload bert() { return plan::read_workload("bert-large", topology::configs_folder()); }

/// Layers of 32 MiB, which take no long search.
plan::Workload layers(int count) {
  plan::Workload workload;
  workload.name = "layers";
  workload.profiled_batch = 8;
  for (int layer = 0; layer < count; ++layer) {
    plan::GradientTensor tensor;
    tensor.name = "layer" + std::to_string(layer) + ".weight";
    tensor.elements = 8 << 20;
    tensor.ready_gap = 300_us;
    workload.tensors.push_back(std::move(tensor));
  }
  workload.forward = 150_us * count;
  return workload;
}

PlannerOptions quiet() {
  PlannerOptions options;
  options.compare_baselines = false;
  return options;
}

/// Says stop after so many questions.
std::function<bool()> after(std::size_t questions) {
  return [asked = std::size_t{0}, questions]() mutable { return asked++ >= questions; };
}

bool is_fp32(const plan::Plan& plan) {
  return std::ranges::none_of(plan.buckets,
                              [](const plan::Bucket& bucket) { return bucket.codec.is_lossy(); });
}

TEST_CASE("a search that is stopped early has a plan near the one that it would find", "[slow]") {
  const topology::Topology topology = slow_ports();
  const plan::Workload workload = layers(20);
  const auto costs = sim::make_cost_model(topology, {});
  std::size_t questions = 0;
  PlannerOptions counting = quiet();
  counting.stop = [&questions] {
    ++questions;
    return false;
  };
  const plan::Plan whole = make_plan(topology, workload, *costs, counting);
  CHECK(plan::to_binary(make_plan(topology, workload, *costs, quiet())) == plan::to_binary(whole));
  PlannerOptions early = quiet();
  early.stop = after(questions / 20);
  const plan::Plan stopped = make_plan(topology, workload, *costs, early);
  CAPTURE(whole.prediction.step_time.seconds(), stopped.prediction.step_time.seconds(), questions);
  CHECK(stopped.prediction.step_time <= scaled(whole.prediction.step_time, 1.1));
}

TEST_CASE("a search of many ranks that is not stopped is the one without a budget", "[slow]") {
  const topology::Topology topology = test::clos(std::vector<int>(8, 12), 4);
  const plan::Workload workload = layers(3);
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions budget = quiet();
  budget.stop = [] { return false; };
  CHECK(plan::to_binary(make_plan(topology, workload, *costs, budget)) ==
        plan::to_binary(make_plan(topology, workload, *costs, quiet())));
}

TEST_CASE(
    "a search of very many ranks that is stopped at once has a plan that is quickly simulated") {
  const topology::Topology topology = test::boxes(128, 8);
  const plan::Workload workload = layers(1);
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options = quiet();
  options.stop = [] { return true; };
  const plan::Plan plan = make_plan(topology, workload, *costs, options);
  CHECK(plan.schedules.front().name() == "hierarchical-tree");
  SECTION("unless another family is asked for") {
    options.schedule = "double-binary-tree";
    CHECK(make_plan(topology, workload, *costs, options).schedules.front().name() ==
          "double-binary-tree");
  }
}

TEST_CASE("a family that is faster than the plan of a stopped search is the plan", "[slow]") {
  const topology::Topology topology = slow_ports();
  const plan::Workload workload = layers(4);
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options = quiet();
  SECTION("any") {}
  SECTION("of those that may be") { options.schedule = "ring"; }
  SECTION("without codecs") { options.codec = plan::Codec{}; }
  const plan::Plan naive = make_naive_plan(topology, workload, *costs, options);
  const Duration limit = naive.prediction.step_time;
  const FamilyComparison compared =
      compare_families(topology, workload, *costs, options, naive.batch, limit);
  Duration fastest = limit;
  for (const FamilySteps& steps : compared.families) {
    if (options.schedule.has_value() && steps.family != *options.schedule) {
      continue;
    }
    const auto& step = options.codec.has_value() ? steps.fp32 : steps.any;
    fastest = step.has_value() ? std::min(fastest, step->step_time) : fastest;
  }
  REQUIRE(fastest < limit);
  REQUIRE(compared.faster.has_value());
  const plan::Plan& plan = *compared.faster;
  CHECK(plan.prediction.step_time == fastest);
  CHECK(sim::make_cost_model(topology, {})->step(plan, workload).step_time == fastest);
  CHECK(plan::verify(plan, &topology, &workload).problems == std::vector<std::string>{});
  CHECK((!options.codec.has_value() || is_fp32(plan)));
  CHECK((!options.schedule.has_value() ||
         std::ranges::all_of(plan.schedules, [](const plan::TransferGraph& graph) {
           return graph.name().starts_with("ring");
         })));
  CHECK(!compare_families(topology, workload, *costs, options, naive.batch, fastest)
             .faster.has_value());
}

TEST_CASE("what a report shows is not faster than the plan of a stopped search") {
  const topology::Topology topology = topology::read_cluster("two-racks-40g").topology;
  const plan::Workload workload = bert();
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options = quiet();
  options.stop = [] { return true; };
  const plan::Plan alone = make_plan(topology, workload, *costs, options);
  const ExplainedPlan explained = make_explained_plan(topology, workload, *costs, options);
  const plan::Plan& plan = explained.plan;
  REQUIRE(!explained.report.baselines.empty());
  REQUIRE(!explained.report.choices.empty());
  for (const auto* rows :
       {&explained.report.baselines, &explained.report.single_knobs, &explained.report.choices}) {
    for (const Alternative& row : *rows) {
      CAPTURE(row.name);
      CHECK(row.step_time >= plan.prediction.step_time);
      CHECK(row.against_plan == Approx(row.step_time / plan.prediction.step_time - 1));
    }
  }
  CHECK(plan.prediction.step_time < alone.prediction.step_time);
  CHECK(explained.report.not_reached == std::vector<std::string>{"one knob alone", "unprotected"});
  CHECK(plan::verify(plan, &topology, &workload).problems == std::vector<std::string>{});
}

TEST_CASE("a report that is stopped names the rows that it has not", "[slow]") {
  const topology::Topology topology = topology::read_cluster("two-racks-40g").topology;
  const plan::Workload workload = bert();
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options = quiet();
  options.stop = [] { return false; };
  const PlanReport whole = make_explained_plan(topology, workload, *costs, options).report;
  CHECK(whole.not_reached.empty());
  options.stop_report = [] { return true; };
  const PlanReport cut = make_explained_plan(topology, workload, *costs, options).report;
  // What the search has simulated itself is known; the rest is named.
  CHECK(!cut.unprotected.has_value());
  CHECK(std::ranges::count(cut.not_reached, "unprotected") == 1);
  for (const Alternative& row : whole.baselines) {
    const bool is_shown =
        std::ranges::any_of(cut.baselines, [&](const auto& one) { return one.name == row.name; });
    CAPTURE(row.name);
    CHECK(std::ranges::count(cut.not_reached, row.name) == (is_shown ? 0 : 1));
  }
  CHECK(std::ranges::count(cut.not_reached, "parameter server") == 1);
}

TEST_CASE("progress goes on to the end of a search, and does not stay where it is") {
  const topology::Topology topology = topology::read_cluster("two-racks-40g").topology;
  const plan::Workload workload = layers(6);
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options = quiet();
  std::vector<double> shares;
  options.progress = [&](double share, const std::string&) { shares.push_back(share); };
  make_plan(topology, workload, *costs, options);
  CHECK(std::ranges::is_sorted(shares));
  CHECK(shares.back() == 1);
  std::size_t longest = 0;  // of calls with one share
  std::size_t same = 0;
  for (std::size_t i = 1; i < shares.size(); ++i) {
    same = shares[i] == shares[i - 1] ? same + 1 : 0;
    longest = std::max(longest, same);
  }
  CAPTURE(shares.size());
  CHECK(longest <= shares.size() / 10);
}

TEST_CASE("a search for what is near the bound says what it looks at, in FP32 first") {
  const topology::Topology topology = topology::read_cluster("two-racks-40g").topology;
  const plan::Workload workload = layers(6);
  const auto costs = sim::make_cost_model(topology, {});
  for (const double gap : {1e-6, 10.0}) {  // what no plan reaches, and what the first one does
    CAPTURE(gap);
    PlannerOptions options = quiet();
    options.enough_gap = gap;
    std::vector<std::string> told;
    std::vector<double> shares;
    options.progress = [&](double share, const std::string& what) {
      shares.push_back(share);
      told.push_back(what);
    };
    make_plan(topology, workload, *costs, options);
    CHECK(std::ranges::is_sorted(shares));
    REQUIRE(told.size() > 2);
    CHECK_THAT(told[1], Catch::StartsWith("FP32 in buckets of "));
    CHECK((told[2] == "checking") == (gap > 1));
  }
}

}  // namespace
}  // namespace rackrail::planner::stopped_search_test
