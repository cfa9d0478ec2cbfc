// The steps in which a plan sends FP32 first.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "plan/reduced_error.hpp"
#include "planner/batch/learning_rate.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::compression_warmup_test {
namespace {

/// What a rank has lost of a gradient is only made up for over steps: the budget allows all of it.
constexpr double kAnyError = 1;

struct Situation {
  topology::Topology cluster = topology::read_cluster("two-racks-40g").topology;
  plan::Workload workload = plan::read_workload("vgg-16", topology::configs_folder());
  std::unique_ptr<plan::CostModel> costs = sim::make_cost_model(cluster, {});

  plan::Plan plan(const PlannerOptions& options) {
    return make_plan(cluster, workload, *costs, options);
  }
};

PlannerOptions quick() {
  PlannerOptions options;
  options.compare_baselines = false;
  options.bucket_size = 100_MiB;
  options.local_batch = 2;
  return options;
}

TEST_CASE("a plan with codecs finer than a tenth starts with them") {
  Situation situation;
  const plan::Plan plan = situation.plan(quick());
  REQUIRE(std::any_of(plan.buckets.begin(), plan.buckets.end(),
                      [](const plan::Bucket& b) { return b.codec.is_lossy(); }));
  CHECK(plan.compression_warmup_steps == 0);
  CHECK(plan.prediction.warmup_step_time == Duration());
}

TEST_CASE("a plan that leaves most of a gradient out warms up, and says what that takes") {
  Situation situation;
  PlannerOptions options = quick();
  options.error_budget = kAnyError;
  const plan::Plan plan = situation.plan(options);
  REQUIRE(std::any_of(plan.buckets.begin(), plan.buckets.end(),
                      [](const plan::Bucket& b) { return plan::relative_error(b.codec) > 0.5; }));
  CHECK(plan.compression_warmup_steps == kWarmupSteps);
  // The same plan without codecs, simulated on its own.
  const auto plain =
      sim::simulate_step(plan::without_codecs(plan), situation.workload, situation.cluster, {});
  CHECK(plan.prediction.warmup_step_time == plain.estimate.step_time);
  CHECK(plan.prediction.warmup_step_time > plan.prediction.step_time);

  options.compression_warmup = 7;
  CHECK(situation.plan(options).compression_warmup_steps == 7);
}

TEST_CASE("a codec that was asked for is used from the first step on") {
  Situation situation;
  PlannerOptions options = quick();
  options.codec = plan::parse_codec("topk");
  CHECK(situation.plan(options).compression_warmup_steps == 0);
  options.compression_warmup = 5;
  CHECK(situation.plan(options).compression_warmup_steps == 5);
}

TEST_CASE("what was measured of a codec's error counts, not its model", "[slow]") {
  Situation situation;
  const auto uses = [](const plan::Plan& plan, plan::CodecKind kind) {
    return std::any_of(plan.buckets.begin(), plan.buckets.end(),
                       [&](const plan::Bucket& bucket) { return bucket.codec.kind == kind; });
  };
  REQUIRE(uses(situation.plan(quick()), plan::CodecKind::kInt8Block));
  situation.workload.codec_errors = {{"int8", 0.03}};
  CHECK_FALSE(uses(situation.plan(quick()), plan::CodecKind::kInt8Block));
  // A model whose gradients are nearly all zero.
  situation.workload.codec_errors = {{"topk", 0.01}};
  const plan::Plan sparse = situation.plan(quick());
  CHECK(uses(sparse, plan::CodecKind::kTopK));
  CHECK(sparse.compression_warmup_steps == 0);
}

TEST_CASE("a codec is used where all encodings on a schedule's way are within the budget") {
  Situation situation;
  situation.workload.codec_errors = {{"int8", 0.01}};
  const auto error_with = [&](double budget) {
    PlannerOptions options = quick();
    options.error_budget = budget;
    const plan::Plan plan = situation.plan(options);
    const bool has_int8 =
        std::any_of(plan.buckets.begin(), plan.buckets.end(), [](const plan::Bucket& bucket) {
          return bucket.codec.kind == plan::CodecKind::kInt8Block;
        });
    const double error = plan::reduced_error(plan, situation.workload);
    CHECK(error <= budget);
    return has_int8 ? error : 0;
  };
  CHECK(error_with(0.011) == 0);  // one encoding would be, those of sums and results are not
  CHECK(error_with(0.02) > 0.011);
}

TEST_CASE("a plan without codecs has no warm-up, whatever is asked for") {
  Situation situation;
  PlannerOptions options = quick();
  options.error_budget = 0;
  options.compression_warmup = 5;
  CHECK(situation.plan(options).compression_warmup_steps == 0);
}

}  // namespace
}  // namespace rackrail::planner::compression_warmup_test
