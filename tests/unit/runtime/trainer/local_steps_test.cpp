// Periodic averaging over the real executor: ranks are threads.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "runtime/trainer/parameter_average.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"
#include "tests/unit/runtime/trainer/test_ranks.hpp"

namespace rackrail::trainer::local_steps_test {
namespace {

test::RankCourse every(std::int64_t local_steps) {
  test::RankCourse course;
  course.synchrony.local_steps = local_steps;
  return course;
}

void check_equal_digests(const test::RankOutcome& outcome) {
  for (const std::string& digest : outcome.digests) {
    CHECK(digest == outcome.digests.front());
  }
}

/// Mean over the last ten steps: single ones are noisy.
double late_loss(const test::RankOutcome& outcome) {
  return std::accumulate(outcome.losses.end() - 10, outcome.losses.end(), 0.0) / 10;
}

}  // namespace

TEST_CASE("averaging after every step is synchronous training, up to rounding") {
  TrainingConfig config = test::small_config();
  config.optimizer.clip_norm.reset();  // each rank clips its own gradient, not the sum
  config.optimizer.momentum = GENERATE(0.0, 0.9);
  const DataSplit data = test::make_split(config, 100, 50);
  for (const std::vector<std::int64_t>& local_batch :
       std::vector<std::vector<std::int64_t>>{{4, 4, 4, 4}, {7, 1, 4}}) {
    CAPTURE(local_batch, config.optimizer.momentum);
    const plan::Plan plan = test::make_server_plan(config, local_batch);
    const test::RankOutcome together = test::train_ranks(config, data, plan);
    const test::RankOutcome averaged = test::train_ranks(config, data, plan, every(1));
    for (std::size_t step = 0; step < together.losses.size(); ++step) {
      CAPTURE(step);
      CHECK(averaged.losses[step] == Approx(together.losses[step]).epsilon(2e-3));
    }
    CHECK(averaged.sent == together.sent);
    CHECK(averaged.digests != together.digests);  // so it did go another way
    check_equal_digests(averaged);
  }
}

TEST_CASE("the bytes fall by the steps between averages, and it learns") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 100, 50);
  const plan::Plan plan = test::make_server_plan(config, {4, 4, 4});
  const test::RankOutcome together = test::train_ranks(config, data, plan);
  for (const std::int64_t local_steps : {2, 4, 8}) {
    CAPTURE(local_steps);
    const test::RankOutcome averaged = test::train_ranks(config, data, plan, every(local_steps));
    CHECK(averaged.sent.count() * local_steps == together.sent.count());
    check_equal_digests(averaged);
    CHECK(late_loss(averaged) < 0.5 * averaged.losses.front());
    CHECK(averaged.accuracy == Approx(together.accuracy).margin(0.05));
  }
  // The end has an average of its own: after steps 7, 14, …, 35 and 40.
  const test::RankOutcome uneven = test::train_ranks(config, data, plan, every(7));
  CHECK(uneven.sent.count() * 40 == together.sent.count() * 6);
  check_equal_digests(uneven);
}

TEST_CASE("between averages a rank learns by its own gradients alone") {
  TrainingConfig config = test::small_config();
  config.steps = 6;
  const DataSplit data = test::make_split(config, 100, 50);
  const plan::Plan plan = test::make_server_plan(config, {4, 12});
  const test::RankOutcome together = test::train_ranks(config, data, plan);
  const test::RankOutcome averaged = test::train_ranks(config, data, plan, every(2));
  CHECK(averaged.losses[0] == Approx(together.losses[0]).epsilon(1e-6));
  // The second step starts from parameters of the rank's own.
  CHECK(std::abs(averaged.losses[1] - together.losses[1]) > 1e-6);
}

TEST_CASE("training with local steps resumes to the bits of an unbroken run") {
  TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 50, 20);
  const plan::Plan plan = test::make_server_plan(config, {3, 5, 4});
  const test::RankOutcome unbroken = test::train_ranks(config, data, plan, every(4));

  config.checkpoint_every = 10;
  const rackrail::test::TemporaryDirectory folder;
  test::RankCourse course = every(4);
  course.save_to = folder.path();
  course.stop_after = 24;
  const test::RankOutcome first = test::train_ranks(config, data, plan, course);
  // What is due in between waits for the next average; the end is saved anyway.
  CHECK(first.saved == std::vector<std::int64_t>{12, 20, 24});
  const FoundCheckpoint found = find_latest_valid(folder.path());
  REQUIRE(found.path);

  course = every(4);
  course.restore_from = *found.path;
  const test::RankOutcome second = test::train_ranks(config, data, plan, course);
  CHECK(second.first_step == 24);
  CHECK(second.digests == unbroken.digests);

  // Momentum differs from rank to rank, so each needs its own.
  const LoadedCheckpoint one = load_checkpoint(*found.path, Rank(1), {});
  const LoadedCheckpoint two = load_checkpoint(*found.path, Rank(2), {});
  CHECK(one.parameters == two.parameters);
  CHECK(one.residuals != two.residuals);

  for (const std::optional<std::int64_t> other :
       {std::optional<std::int64_t>(), std::optional<std::int64_t>(5)}) {
    course.synchrony.local_steps = other;
    CHECK_THROWS_WITH(test::train_ranks(config, data, plan, course),
                      Catch::Contains("a checkpoint of training"));
  }
}

TEST_CASE("a mean that is not finite takes all ranks back to the last one") {
  ParameterAverage average(0.25);
  const std::vector<float> common = {1, 2, 3};
  std::vector<float> parameters = {1.5, 2, 1};
  average.begin(common);
  std::vector<float> part(3);
  average.leave(parameters, part);
  CHECK(part == std::vector<float>{0.125, 0, -0.5});
  CHECK(average.arrive(std::vector<float>{1, 1, 1}, parameters));
  CHECK(parameters == std::vector<float>{2, 3, 4});
  parameters[0] = std::numeric_limits<float>::infinity();
  average.leave(parameters, part);
  CHECK_FALSE(average.arrive(part, parameters));
  CHECK(parameters == std::vector<float>{2, 3, 4});
}

}  // namespace rackrail::trainer::local_steps_test
