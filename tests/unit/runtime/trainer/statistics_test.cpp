#include "runtime/trainer/statistics.hpp"

#include <catch2/catch.hpp>

namespace rackrail::trainer::statistics_test {
namespace {

TEST_CASE("The median is the middle value") {
  CHECK(median({5_us}) == 5_us);
  CHECK(median({9_us, 1_us, 5_us}) == 5_us);
  CHECK(median({9_us, 1_us, 5_us, 2_us}) == 2_us);
}

TEST_CASE("Of a row whose long and short times take turns, each takes their mean") {
  const auto turns = [](std::size_t count) {
    std::vector<Duration> times;
    for (std::size_t i = 0; i < count; ++i) {
      times.push_back(i % 2 == 0 ? 50_ms : 30_ms);
    }
    return times;
  };
  for (const std::size_t count : {2, 3, 7, 16, 33, 101}) {
    INFO(count << " times");
    CHECK(time_of_each(turns(count)).seconds() == Approx(0.040));
  }
  std::vector<Duration> disturbed = turns(101);
  for (const std::size_t late : {0, 1, 2, 40, 95}) {
    disturbed[late] = 900_ms;
  }
  CHECK(time_of_each(disturbed).seconds() == Approx(0.040));
  std::vector<Duration> few = turns(6);
  few[3] = 900_ms;
  CHECK(time_of_each(few).seconds() == Approx(0.040));
  // No minimum: where half of the stretches are slow, they count.
  CHECK(time_of_each(std::vector{10_ms, 10_ms, 20_ms, 20_ms}).seconds() == Approx(0.015));
}

TEST_CASE("A summary is made of medians, and of means where steps are of two kinds") {
  std::vector<StepTimes> steps;
  for (const std::int64_t k : {1, 2, 300}) {
    StepTimes t;
    t.forward = 1_ms * k;
    t.backward = 2_ms * k;
    t.optimizer = 3_ms * k;
    t.synchronise = 2_ms * k;
    t.input_wait = 2_ms * k;
    t.compute_cpu = 5_ms * k;
    t.step = 10_ms * k;
    steps.push_back(t);
  }
  const StepSummary summary = summarise(steps);
  CHECK(summary.steps == 3);
  CHECK(summary.step_time == 20_ms);
  CHECK(summary.compute_time == 12_ms);
  CHECK(summary.compute_cpu_time == 10_ms);
  CHECK(summary.sync_time == 4_ms);
  CHECK(summary.input_wait == 4_ms);
  CHECK(summary.sync_share == Approx(0.2));
  CHECK(summary.mean_step_time == 1010_ms);
  steps[2].synchronise = Duration();
  CHECK(summarise(steps).overall_sync_share == Approx(6.0 / 3030));
  CHECK(summarise({}).steps == 0);
}

TEST_CASE("The clocks go on") {
  const Duration wall = wall_clock();
  const Duration cpu = thread_cpu_clock();
  double sink = 1;
  while (thread_cpu_clock() - cpu < 1_ms) {
    sink += sink * 1e-9;
  }
  CHECK(sink > 1);
  CHECK(wall_clock() - wall >= 900_us);
}

}  // namespace
}  // namespace rackrail::trainer::statistics_test
