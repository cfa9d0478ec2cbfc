// Training over asynchronous parameter servers: ranks are threads.
#include <catch2/catch.hpp>
#include <chrono>
#include <limits>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"
#include "tests/unit/runtime/trainer/test_ranks.hpp"

namespace rackrail::trainer::asynchronous_test {
namespace {

test::RankCourse ahead_by(std::int64_t staleness) {
  test::RankCourse course;
  course.synchrony.staleness = staleness;
  return course;
}

TrainingConfig unclipped_config() {
  TrainingConfig config = test::small_config();
  config.optimizer.clip_norm.reset();  // each worker clips its own gradient, not the sum
  return config;
}

}  // namespace

TEST_CASE("servers that let nobody ahead train to the bits of synchronous training") {
  const TrainingConfig config = unclipped_config();
  const DataSplit data = test::make_split(config, 100, 50);
  for (const std::vector<std::int64_t>& local_batch :
       std::vector<std::vector<std::int64_t>>{{6, 6}, {4, 4, 4, 4}, {7, 1, 4}}) {
    CAPTURE(local_batch);
    const plan::Plan plan = test::make_server_plan(config, local_batch);
    const test::RankOutcome together = test::train_ranks(config, data, plan);
    const test::RankOutcome served = test::train_ranks(config, data, plan, ahead_by(0));
    CHECK(served.digests == together.digests);
    for (std::size_t step = 0; step < together.losses.size(); ++step) {
      CHECK(served.losses[step] == Approx(together.losses[step]));  // summed in any order
    }
    CHECK(served.sent == together.sent);
    CHECK(served.conflicts == 0);
    CHECK(served.stale == 0);
    CHECK(served.most_ahead == 0);
  }
}

TEST_CASE("workers that may be ahead learn too, end with the same bits, and meet others' updates") {
  TrainingConfig config = unclipped_config();
  config.steps = 120;
  // With momentum, what is late by many updates is taken too far at greater rates, now and then.
  config.base_learning_rate *= 0.25;
  const DataSplit data = test::make_split(config, 100, 50);
  const plan::Plan plan = test::make_server_plan(config, {4, 4, 4});
  const test::RankOutcome together = test::train_ranks(config, data, plan);
  const std::int64_t staleness = GENERATE(1, 4, 1000);
  CAPTURE(staleness);
  const test::RankOutcome served = test::train_ranks(config, data, plan, ahead_by(staleness));
  for (const std::string& digest : served.digests) {
    CHECK(digest == served.digests.front());
  }
  CHECK(served.sent == together.sent);
  CHECK(served.accuracy == Approx(together.accuracy).margin(0.1));
  CHECK(served.losses.back() < 0.5 * served.losses.front());
  CHECK(served.most_ahead <= staleness);
  // Each worker's part of each step that another serves: 2 of 3 ranks' parts.
  CHECK(served.updates == Approx(120 * 3 * 3 * 2.0 / 3).epsilon(0.1));
  CHECK(served.conflicts > 0);
  CHECK(served.conflicts <= served.updates);
  CHECK(served.stale >= served.conflicts);
}

TEST_CASE("nobody waits for a slow worker but at the bound") {
  using Clock = std::chrono::steady_clock;
  TrainingConfig config = unclipped_config();
  config.steps = 20;
  const DataSplit data = test::make_split(config, 100, 50);
  const plan::Plan plan = test::make_server_plan(config, {4, 4, 4});
  for (const std::int64_t staleness : {3, 1000}) {
    CAPTURE(staleness);
    std::vector<std::int64_t> others_at(21, 0);  // steps of rank 1 when rank 2 had done so many
    std::atomic<std::int64_t> steps_of_one = 0;
    test::RankCourse course = ahead_by(staleness);
    course.after_step = [&](Rank rank, std::int64_t step) {
      if (rank == Rank(1)) {
        steps_of_one = step;
      } else if (rank == Rank(2)) {
        const auto until = Clock::now() + std::chrono::milliseconds(10);
        std::this_thread::sleep_until(until);
        others_at[static_cast<std::size_t>(step)] = steps_of_one;
      }
    };
    const test::RankOutcome served = test::train_ranks(config, data, plan, course);
    CHECK(served.most_ahead <= staleness);
    for (std::size_t step = 1; step < 20; ++step) {
      // A worker that goes on has done `staleness` more than the slowest, and then does one.
      CHECK(others_at[step] <= static_cast<std::int64_t>(step) + staleness + 1);
    }
    if (staleness == 3) {
      CHECK(served.most_ahead == 3);
    }
  }
}

TEST_CASE("asynchronous training resumes from where all met") {
  TrainingConfig config = unclipped_config();
  config.checkpoint_every = 15;
  const DataSplit data = test::make_split(config, 50, 20);
  const plan::Plan plan = test::make_server_plan(config, {3, 5, 4});
  const std::int64_t staleness = GENERATE(0, 2);
  CAPTURE(staleness);

  const rackrail::test::TemporaryDirectory folder;
  test::RankCourse course = ahead_by(staleness);
  course.save_to = folder.path();
  course.stop_after = 20;
  const test::RankOutcome first = test::train_ranks(config, data, plan, course);
  CHECK(first.saved == std::vector<std::int64_t>{15, 20});
  const FoundCheckpoint found = find_latest_valid(folder.path());
  REQUIRE(found.path);
  // Each rank's part has the momentum of what it serves.
  CHECK_FALSE(load_checkpoint(*found.path, Rank(2), {}).residuals.empty());

  config.checkpoint_every = 0;
  course = ahead_by(staleness);
  course.restore_from = *found.path;
  const test::RankOutcome second = test::train_ranks(config, data, plan, course);
  CHECK(second.first_step == 20);
  for (const std::string& digest : second.digests) {
    CHECK(digest == second.digests.front());
  }
  if (staleness == 0) {  // else the order of updates is that of their arrival
    CHECK(second.digests == test::train_ranks(config, data, plan, ahead_by(0)).digests);
  }
  course.synchrony = {};
  CHECK_THROWS_WITH(test::train_ranks(config, data, plan, course),
                    Catch::Contains("a checkpoint of training"));
}

TEST_CASE("a gradient that is not finite is withheld, and training goes on") {
  TrainingConfig config = unclipped_config();
  config.steps = 10;
  DataSplit data = test::make_split(config, 60, 20);
  // One sample of the 60 that the steps take poisons each gradient that it is part of.
  std::vector<float> features(16, std::numeric_limits<float>::infinity());
  data.train.append(features, 1);
  const plan::Plan plan = test::make_server_plan(config, {4, 4, 4});
  const std::int64_t staleness = GENERATE(0, 2);
  CAPTURE(staleness);
  const test::RankOutcome served = test::train_ranks(config, data, plan, ahead_by(staleness));
  for (const std::string& digest : served.digests) {
    CHECK(digest == served.digests.front());
  }
  CHECK(std::isfinite(served.losses.back()));
  if (staleness == 0) {
    CHECK(served.digests == test::train_ranks(config, data, plan).digests);
  }
}

}  // namespace rackrail::trainer::asynchronous_test
