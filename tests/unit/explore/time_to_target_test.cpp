#include "explore/time_to_target.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace rackrail::explore::time_to_target_test {
namespace {

plan::BatchPlan batch_of(std::int64_t local, std::int64_t ranks, std::int64_t passes = 1) {
  plan::BatchPlan batch;
  batch.local_batch.assign(static_cast<std::size_t>(ranks), local);
  batch.accumulation = passes;
  return batch;
}

TEST_CASE("without a noise scale every sample counts, and the last step is a whole one") {
  const auto target = time_to_target(plan::Workload{}, batch_of(8, 4, 2), 500_ms, 1000);
  REQUIRE(target.has_value());
  CHECK(target->steps == 16);  // 1000/64 = 15.6
  CHECK(target->seconds == Approx(8));
}

TEST_CASE("a sample of a large batch is worth less, so more are needed") {
  plan::Workload workload;
  workload.noise_scale = 1000;
  workload.base_batch = 100;
  // E(1000) = 1100/2000, so 1e6 samples at the base batch are 1e6/(1000·0.55) steps.
  const auto target = time_to_target(workload, batch_of(250, 4), 1_s, 1e6);
  REQUIRE(target.has_value());
  CHECK(target->steps == std::ceil(1e6 / 550));
  // At the base batch the steps are those of the base batch.
  CHECK(time_to_target(workload, batch_of(25, 4), 1_s, 1e6)->steps == 10'000);
}

TEST_CASE("the end of a noise scale along training is a target, if nothing else is") {
  plan::Workload workload;
  CHECK(!time_to_target(workload, batch_of(1, 2), 1_s).has_value());
  workload.base_batch = 32;
  workload.noise_scale = 500;
  CHECK(!time_to_target(workload, batch_of(1, 2), 1_s).has_value());
  workload.noise_curve = {{0, 500}, {2000, 500}};
  const auto target = time_to_target(workload, batch_of(16, 2), 2_s);
  REQUIRE(target.has_value());
  CHECK(target->samples == 2000 * 32);
  CHECK(target->steps == 2000);
  CHECK(target->seconds == Approx(4000));
  CHECK(time_to_target(workload, batch_of(16, 2), 2_s, 320)->steps == 10);
}

TEST_CASE("trainings may be longer than a Duration, but must have a length") {
  const auto target = time_to_target(plan::Workload{}, batch_of(1, 2), 10_s, 1e9);
  CHECK(target->seconds == Approx(5e9));
  for (const double samples : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN()}) {
    CAPTURE(samples);
    CHECK_THROWS_AS(time_to_target(plan::Workload{}, batch_of(1, 2), 1_s, samples), ConfigError);
  }
}

}  // namespace
}  // namespace rackrail::explore::time_to_target_test
