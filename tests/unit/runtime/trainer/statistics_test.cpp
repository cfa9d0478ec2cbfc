#include "runtime/trainer/statistics.hpp"

#include <catch2/catch.hpp>

namespace rackrail::trainer {
namespace {

TEST_CASE("The median is the middle value") {
  CHECK(median({5_us}) == 5_us);
  CHECK(median({9_us, 1_us, 5_us}) == 5_us);
  CHECK(median({9_us, 1_us, 5_us, 2_us}) == 2_us);
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
}  // namespace rackrail::trainer
