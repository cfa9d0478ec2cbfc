// A trainer whose exchange breaks in the middle of a step, and the one that goes on from there.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer {
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

TrainerOptions keeping(bool keeps) {
  TrainerOptions options;
  options.keeps_step_before = keeps;
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

TEST_CASE("a step that was not kept cannot be taken back") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  LocalExchange exchange;
  Trainer trainer(config, test::make_plan(config, {8}), data, exchange, keeping(false), {});
  trainer.run();
  CHECK(trainer.oldest_step() == trainer.step());
  CHECK_THROWS_AS(trainer.go_back(), RuntimeFailure);
}

}  // namespace rackrail::trainer
