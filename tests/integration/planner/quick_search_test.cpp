// Quick searches: on random clusters that nobody tuned them on, what they find against thorough
// ones; that they are repeatable, and end by work.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "base/work.hpp"
#include "plan/codec.hpp"
#include "plan/format.hpp"
#include "planner/planner.hpp"
#include "planner/tuning/schedule_table.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::quick_search_test {
namespace {

/// Racks of unlike hosts behind unlike uplinks.
topology::Topology random_racks(std::mt19937& random) {
  const auto one_of = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  std::vector<std::vector<int>> nics;
  std::vector<int> uplinks;
  const int racks = one_of(2, 3);
  for (int rack = 0; rack < racks; ++rack) {
    nics.emplace_back();
    const int hosts = one_of(1, 3);
    for (int host = 0; host < hosts; ++host) {
      nics.back().push_back(5 * one_of(1, 4));
    }
    uplinks.push_back(5 * one_of(1, 4));
  }
  return test::racks(nics, uplinks);
}

plan::Workload random_model(std::mt19937& random) {
  plan::Workload workload;
  workload.name = "random";
  workload.profiled_batch = 8;
  for (int layer = 0; layer < 6; ++layer) {
    plan::GradientTensor tensor;
    tensor.name = "layer" + std::to_string(layer) + ".weight";
    tensor.elements = std::uniform_int_distribution<std::int64_t>(1 << 18, 1 << 23)(random);
    tensor.ready_gap = 300_us;
    workload.tensors.push_back(std::move(tensor));
  }
  workload.forward = 1_ms;
  return workload;
}

plan::Plan planned(const topology::Topology& topology, const plan::Workload& workload,
                   SearchEffort effort) {
  PlannerOptions options;
  options.compare_baselines = false;
  options.effort = effort;
  return make_plan(topology, workload, *sim::make_cost_model(topology, {}), options);
}

}  // namespace

TEST_CASE("a quick plan takes at most 1 % longer than a thorough one, and is the same again") {
  const auto seed = GENERATE(1U, 2U, 3U, 4U, 5U, 6U);
  CAPTURE(seed);
  std::mt19937 random(seed);
  const topology::Topology topology = random_racks(random);
  const plan::Workload workload = random_model(random);
  const plan::Plan quick = planned(topology, workload, SearchEffort::kQuick);
  const plan::Plan thorough = planned(topology, workload, SearchEffort::kThorough);
  constexpr double kMostLonger = 1.01;
  CHECK(quick.prediction.step_time <= scaled(thorough.prediction.step_time, kMostLonger));
  CHECK(plan::to_json(planned(topology, workload, SearchEffort::kQuick)) == plan::to_json(quick));
}

TEST_CASE("a quick plan is no slower than one codec for all buckets") {
  const auto seed = GENERATE(11U, 12U, 13U, 14U);
  CAPTURE(seed);
  std::mt19937 random(seed);
  const topology::Topology topology = random_racks(random);
  const plan::Workload workload = random_model(random);
  const plan::Plan quick = planned(topology, workload, SearchEffort::kQuick);
  constexpr double kRounding = 1.001;
  for (const char* name : {"none", "fp16"}) {  // int8 by order is not within the error budget
    PlannerOptions options;
    options.compare_baselines = false;
    options.codec = plan::parse_codec(name);
    const plan::Plan uniform =
        make_plan(topology, workload, *sim::make_cost_model(topology, {}), options);
    CAPTURE(name);
    CHECK(quick.prediction.step_time <= scaled(uniform.prediction.step_time, kRounding));
  }
}

TEST_CASE("a search that is told to stop says so, one that is quick does not") {
  std::mt19937 random(21U);
  const topology::Topology topology = random_racks(random);
  const plan::Workload workload = random_model(random);
  const auto notes_with = [&](std::function<bool()> stop) {
    PlannerOptions options;
    options.effort = SearchEffort::kQuick;
    options.stop = std::move(stop);
    const plan::Plan plan =
        make_plan(topology, workload, *sim::make_cost_model(topology, {}), options);
    return fmt::format("{}", fmt::join(plan.notes, "\n"));
  };
  CHECK_THAT(notes_with([] { return true; }), Catch::Contains("was stopped early"));
  CHECK_THAT(notes_with([] { return false; }), !Catch::Contains("was stopped early"));
  CHECK(notes_with([] { return false; }) == notes_with({}));
}

TEST_CASE("a limit is reached by work, sooner the nearer the bound is") {
  const QuickLimit far(8);
  QuickLimit near(8);
  near.set_bound(100_ms);
  const std::int64_t whole = far.left();
  CHECK(QuickLimit(8, 0.5).left() == whole / 2);
  CHECK(QuickLimit(64).left() > whole);
  CHECK(QuickLimit(100'000).left() == QuickLimit(1024).left());
  near.found(102_ms);
  CHECK(near.left() < whole);
  CHECK_FALSE(near.is_reached());
  near.found(200_ms);  // the best counts
  CHECK(near.left() < whole);
  Work::add(static_cast<std::uint64_t>(whole));
  CHECK(far.is_reached());
  QuickLimit done(8);
  done.found_gap(kNearEnough);
  CHECK(done.is_reached());
}

TEST_CASE("a quick search does little work where a tensor is huge") {
  plan::Workload workload;
  workload.name = "huge";
  workload.profiled_batch = 8;
  plan::GradientTensor tensor;
  tensor.name = "a";
  tensor.elements = 100'000'000'000;
  tensor.ready_gap = 1_us;
  workload.tensors.push_back(std::move(tensor));
  workload.forward = 1_ms;
  const std::int64_t before = Work::done();
  planned(test::two_racks(), workload, SearchEffort::kQuick);
  CHECK(Work::done() - before < 6 * QuickLimit(4).left());
}

TEST_CASE("searches have names") {
  CHECK(parse_search_effort("quick") == SearchEffort::kQuick);
  CHECK(parse_search_effort("thorough") == SearchEffort::kThorough);
  CHECK_THROWS_AS(parse_search_effort("fast"), ConfigError);
}

TEST_CASE("a quick table has the best of a thorough one within 1 % at large sizes") {
  std::mt19937 random(7U);
  const topology::Topology topology = random_racks(random);
  const auto costs = sim::make_cost_model(topology, {});
  ScheduleTableOptions options;
  options.smallest = 64_MiB;
  options.largest = 256_MiB;
  const ScheduleTable thorough = make_schedule_table(topology, *costs, options);
  options.effort = SearchEffort::kQuick;
  const ScheduleTable quick = make_schedule_table(topology, *costs, options);
  constexpr double kMostLonger = 1.01;
  for (std::size_t i = 0; i < quick.rows.size(); ++i) {
    CHECK(quick.rows[i].times[quick.rows[i].best].time <=
          scaled(thorough.rows[i].times[thorough.rows[i].best].time, kMostLonger));
  }
}

}  // namespace rackrail::planner::quick_search_test
