// A trainer whose exchange breaks in the middle of a step, and the one that goes on from there.
#include <algorithm>
#include <catch2/catch.hpp>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::trainer_loss_test {
namespace {

/// The sums of a step never come, and what is there is half done.
class BreakingExchange final : public GradientExchange {
 public:
  explicit BreakingExchange(std::uint32_t step) : breaks_at_(step) {}

  void begin_step(std::uint32_t step) override { step_ = step; }
  void launch(BucketId /*bucket*/, std::span<float> data) override {
    if (step_ == breaks_at_) {
      std::ranges::fill(data, 1e9F);
    }
  }
  void wait_all() override {
    if (step_ == breaks_at_) {
      throw PeerLostError("rank 1 is gone");
    }
  }

 private:
  std::uint32_t breaks_at_;
  std::uint32_t step_ = 0;
};

/// A wait of one rank that averages breaks, whether something is under way or not.
class BreakingAverages final : public GradientExchange {
 public:
  explicit BreakingAverages(std::int64_t wait) : breaks_at_(wait) {}

  void begin_step(std::uint32_t /*step*/) override {}
  void launch(BucketId /*bucket*/, std::span<float> data) override { launched_.push_back(data); }
  void wait_all() override {
    if (waits_++ == breaks_at_) {
      for (const std::span<float> data : launched_) {
        std::ranges::fill(data, 1e9F);
      }
      throw PeerLostError("rank 1 is gone");
    }
    launched_.clear();
  }

 private:
  std::int64_t breaks_at_;
  std::int64_t waits_ = 0;
  std::vector<std::span<float>> launched_;
};

TrainerOptions keeping(bool keeps) {
  TrainerOptions options;
  options.keeps_points = keeps;
  return options;
}

}  // namespace

TEST_CASE("training that breaks in a step ends, with another plan, as if nothing had happened") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  const plan::Plan plan = test::make_plan(config, {8});
  LocalExchange local;
  Trainer whole(config, plan, data, local, keeping(false), {});
  const std::string expected = whole.run().parameters_digest;

  const std::int64_t broken_at = GENERATE(0, 1, 13, 39);
  const bool goes_back = GENERATE(false, true);
  if (goes_back && broken_at == 0) {
    return;  // there is nothing before the first step
  }
  CAPTURE(broken_at, goes_back);
  BreakingExchange breaking(static_cast<std::uint32_t>(broken_at));
  Trainer broken(config, plan, data, breaking, keeping(true), {});
  CHECK_THROWS_AS(broken.run(), PeerLostError);
  CHECK(broken.step() == broken_at);
  CHECK(broken.oldest_step() == std::max<std::int64_t>(broken_at - 1, 0));
  if (goes_back) {
    broken.go_back();
    CHECK(broken.step() == broken_at - 1);
    CHECK(broken.oldest_step() == broken_at - 1);  // once
    CHECK_THROWS_AS(broken.go_back(), RuntimeFailure);
  }
  // Two buckets instead of six.
  const plan::Plan other = test::make_plan(config, {8}, {{5, 4, 3}, {2, 1, 0}});
  Trainer rest(config, other, data, local, keeping(true), {});
  rest.take_over(broken);
  const TrainingResult result = rest.run();
  CHECK(result.first_step == broken_at - (goes_back ? 1 : 0));
  CHECK(result.finished);
  CHECK(result.parameters_digest == expected);
}

TEST_CASE("local steps that break end, from an average on, as if nothing had happened") {
  constexpr std::int64_t kLocalSteps = 4;
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  const plan::Plan plan = test::make_plan(config, {8});
  TrainerOptions options = keeping(true);
  options.local_steps = kLocalSteps;
  LocalExchange local;
  Trainer whole(config, plan, data, local, options, {});
  const std::string expected = whole.run().parameters_digest;

  // There is a wait after every step, with an average or without.
  const std::int64_t broken_at = GENERATE(0, 1, 3, 6, 7, 13, 39);
  const bool goes_back = GENERATE(false, true);
  const std::int64_t average = broken_at / kLocalSteps * kLocalSteps;
  if (goes_back && average == 0) {
    return;  // there is nothing before the beginning
  }
  CAPTURE(broken_at, goes_back);
  BreakingAverages breaking(broken_at);
  Trainer broken(config, plan, data, breaking, options, {});
  CHECK_THROWS_AS(broken.run(), PeerLostError);
  CHECK(broken.step() == average);
  CHECK(broken.oldest_step() == std::max<std::int64_t>(average - kLocalSteps, 0));
  if (goes_back) {
    broken.go_back();
    CHECK(broken.step() == average - kLocalSteps);
    CHECK(broken.oldest_step() == broken.step());  // once
    CHECK_THROWS_AS(broken.go_back(), RuntimeFailure);
  }
  const plan::Plan other = test::make_plan(config, {8}, {{5, 4, 3}, {2, 1, 0}});
  Trainer rest(config, other, data, local, options, {});
  rest.take_over(broken);
  const TrainingResult result = rest.run();
  CHECK(result.first_step == average - (goes_back ? kLocalSteps : 0));
  CHECK(result.finished);
  CHECK(result.parameters_digest == expected);
}

TEST_CASE("a step that was not kept cannot be taken back") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  LocalExchange exchange;
  Trainer trainer(config, test::make_plan(config, {8}), data, exchange, keeping(false), {});
  trainer.run();
  CHECK(trainer.oldest_step() == trainer.step());
  CHECK_THROWS_AS(trainer.go_back(), RuntimeFailure);
}

}  // namespace rackrail::trainer::trainer_loss_test
