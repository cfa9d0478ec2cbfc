// Schedules that families have for a collective alone, in steps: faster than what they have for
// steps where ranks are unlike, right in all codecs, and none where nothing is gained.
#include "planner/tuning/step_forms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/format.hpp"
#include "plan/verifier.hpp"
#include "planner/planner.hpp"
#include "planner/tuning/candidates.hpp"
#include "sim/simulator.hpp"
#include "tests/support/broken_grids.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::step_forms_test {
namespace {

using topology::Topology;

/// Gradients of 384 MiB, of which a step's compute hides nearly nothing.
plan::Workload communication() {
  constexpr int kTensors = 24;
  plan::Workload workload;
  workload.name = "communication";
  workload.forward = 100_us;
  workload.optimizer = 10_us;
  for (int i = 0; i < kTensors; ++i) {
    workload.tensors.push_back({fmt::format("layer{}.weight", i), 4 << 20, 10_us});
  }
  return workload;
}

std::vector<std::pair<std::string, Topology>> unlike_clusters() {
  return {{"hosts with several NICs", test::hosts_with_nics(6, {10, 25, 25, 40})},
          {"old and new boxes", test::old_and_new_boxes()},
          {"large and small boxes", test::large_and_small_boxes()}};
}

TEST_CASE("steps on unlike ranks have schedules that families have for a collective alone",
          "[slow]") {
  for (const auto& [name, topology] : unlike_clusters()) {
    CAPTURE(name);
    const auto costs = sim::make_cost_model(topology, {});
    CandidateSet candidates(topology, *costs, {});
    REQUIRE(candidates.add_step_forms());
    bool is_one_faster = false;
    for (const std::int64_t elements : kSizesOfStepForms) {
      const auto all = candidates.cheapest(elements, is_fp32);
      const auto own = candidates.cheapest(elements, both(is_fp32, is_no_step_form));
      REQUIRE((all && own));
      is_one_faster = is_one_faster || all->time.seconds() < 0.9 * own->time.seconds();
    }
    CHECK(is_one_faster);
    std::vector<std::string> codecs;
    for (const Candidate& candidate : candidates.all()) {
      if (candidate.is_step_form) {
        CAPTURE(candidate.family, plan::to_string(candidate.codecs.inside),
                plan::to_string(candidate.codecs.across));
        CHECK(plan::verify(candidate.graph, &topology).problems == std::vector<std::string>{});
        CHECK(schedule_family(candidate.family).refusal(topology, candidate.codecs) ==
              std::nullopt);
        codecs.push_back(plan::to_string(candidate.strongest));
      }
    }
    CHECK(std::ranges::count(codecs, "none") > 0);
    CHECK(std::ranges::count(codecs, "fp16") > 0);
  }
}

TEST_CASE("steps have no other schedules where those for steps are near the bound") {
  const Topology topology = test::grid(3, 4, true);
  const auto costs = sim::make_cost_model(topology, {});
  CHECK_FALSE(CandidateSet(topology, *costs, {}).add_step_forms());
}

TEST_CASE("schedules of steps are made once, and not when a search is to stop", "[slow]") {
  const Topology topology = test::old_and_new_boxes();
  const auto costs = sim::make_cost_model(topology, {});
  bool is_over = false;
  PlannerOptions options;
  options.stop = [&] { return is_over; };
  CandidateSet candidates(topology, *costs, options);
  candidates.complete();
  const std::size_t before = candidates.all().size();
  CHECK(candidates.add_step_forms());
  const std::size_t after = candidates.all().size();
  CHECK(after > before);
  CHECK(candidates.add_step_forms());
  CHECK(candidates.all().size() == after);
  CandidateSet stopped(topology, *costs, options);
  stopped.complete();
  is_over = true;
  CHECK_FALSE(stopped.add_step_forms());
}

TEST_CASE("a search that has time enough finds the plan of one that is not asked to stop",
          "[slow]") {
  const Topology topology = test::hosts_with_nics(6, {10, 25, 25, 40});
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options;
  options.compare_baselines = false;
  const plan::Plan whole = make_plan(topology, communication(), *costs, options);
  options.stop = [] { return false; };
  const plan::Plan timed = make_plan(topology, communication(), *costs, options);
  CHECK(plan::to_json(timed) == plan::to_json(whole));
  // Nor does one that would have ended at a step that none takes.
  options.stop = {};
  options.enough_gap = 1e-6;
  const plan::Plan unmet = make_plan(topology, communication(), *costs, options);
  CHECK(unmet.prediction.step_time == whole.prediction.step_time);
}

TEST_CASE("codecs and families that are asked for have schedules of steps, too", "[slow]") {
  const Topology topology = test::large_and_small_boxes();
  const auto costs = sim::make_cost_model(topology, {});
  for (const char* codec : {"fp16", "int8"}) {
    CAPTURE(codec);
    PlannerOptions options;
    options.codec = plan::parse_codec(codec);
    CHECK(CandidateSet(topology, *costs, options).add_step_forms());
  }
  PlannerOptions options;
  options.schedule = "hierarchical";
  CandidateSet candidates(topology, *costs, options);
  CHECK(candidates.add_step_forms());
  CHECK(std::ranges::all_of(candidates.all(), [](const Candidate& candidate) {
    return candidate.family == "hierarchical";
  }));
}

TEST_CASE("steps that the network decides are near its bound on meshes and unlike ranks",
          "[slow]") {
  constexpr Bandwidth kSlow(250'000'000);
  const std::vector<std::tuple<std::string, Topology, double>> cases = {
      {"mesh", test::grid(5, 7, false), 0.05},
      {"mesh with a slow cable", test::broken_grid(4, 5, false, {{8, kSlow}}), 0.05},
      {"torus without a cable", test::broken_grid(4, 5, true, {{0}}), 0.05},
      {"cube mesh", test::cube_mesh(), 0.02},
      {"hosts with several NICs", test::hosts_with_nics(6, {10, 25, 25, 40}), 0.06},
      {"old and new boxes", test::old_and_new_boxes(), 0.1}};
  const plan::Workload workload = communication();
  for (const auto& [name, topology, most] : cases) {
    CAPTURE(name);
    const auto costs = sim::make_cost_model(topology, {});
    PlannerOptions options;
    options.codec = plan::Codec{};
    options.compare_baselines = false;
    const plan::Plan plan = make_plan(topology, workload, *costs, options);
    CHECK(plan.prediction.gap >= 0);
    CHECK(plan.prediction.gap <= most);
  }
}

}  // namespace
}  // namespace rackrail::planner::step_forms_test
