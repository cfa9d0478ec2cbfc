// Workers of asynchronous servers when one is lost: all go on from where they met last.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "runtime/parameter_server/parameter_exchange.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"
#include "tests/unit/runtime/trainer/test_ranks.hpp"

namespace rackrail::trainer::asynchronous_loss_test {
namespace {

constexpr std::int64_t kMeetsEvery = 5;

/// The ranks of a job between two changes of its membership.
class Epoch {
 public:
  Epoch(const TrainingConfig& config, const plan::Plan& plan, const DataSplit& data,
        std::int64_t staleness)
      : plan_(plan), transports_(runtime::joined_transports("in-process", plan.rank_count())) {
    for (std::size_t r = 0; r < plan.rank_count(); ++r) {
      exchanges_.push_back(std::make_unique<runtime::ParameterExchange>(
          plan_, Rank(r), *transports_[r],
          runtime::ParameterExchangeOptions{.epoch = 1, .staleness = staleness}));
      TrainerOptions options;
      options.self = Rank(r);
      options.keeps_points = true;
      options.meets_every = kMeetsEvery;
      TrainerHooks hooks;
      hooks.on_step = [this, rank = Rank(r)](const StepReport& report) {
        if (rank == Rank(1) && report.step == dies_after) {
          throw PeerLostError("rank 1 is gone");
        }
      };
      trainers.push_back(
          std::make_unique<Trainer>(config, plan_, data, *exchanges_[r], options, hooks));
    }
  }
  ~Epoch() = default;
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  /// What each rank's training ended with, of those that came to the end.
  std::vector<TrainingResult> run() {
    std::vector<TrainingResult> results(trainers.size());
    runtime::on_every_rank(trainers.size(), [&](Rank rank) {
      try {
        results[rank.index()] = trainers[rank.index()]->run();
      } catch (const PeerLostError& error) {
        for (const auto& exchange : exchanges_) {
          exchange->abort(error.what());
        }
      }
    });
    return results;
  }

  std::int64_t dies_after = -1;
  std::vector<std::unique_ptr<Trainer>> trainers;

 private:
  const plan::Plan plan_;
  std::vector<std::unique_ptr<runtime::Transport>> transports_;
  std::vector<std::unique_ptr<runtime::ParameterExchange>> exchanges_;
};

LoadedCheckpoint given_by(Trainer& giver) {
  const TrainingState state = giver.state();
  return {state.info,
          {state.tensors.begin(), state.tensors.end()},
          {state.parameters.begin(), state.parameters.end()},
          {state.momentum.begin(), state.momentum.end()},
          {}};
}

}  // namespace

TEST_CASE("after a loss workers of servers go on from where they met last") {
  TrainingConfig config = test::small_config();
  config.optimizer.clip_norm.reset();
  const bool is_replaced = GENERATE(false, true);
  if (is_replaced) {
    config.optimizer.momentum = 0;  // or that of what the lost one served would be lost
  }
  const std::int64_t staleness = GENERATE(0, 2);
  CAPTURE(is_replaced, staleness);
  const DataSplit data = test::make_split(config, 100, 50);
  const plan::Plan plan = test::make_server_plan(config, {4, 4, 4});

  Epoch first(config, plan, data, staleness);
  first.dies_after = 13;
  first.run();
  for (const auto& trainer : first.trainers) {
    // Of step 15 rank 1 has not pushed its part.
    CHECK(trainer->step() == 10);
    CHECK(trainer->oldest_step() == 5);
    CHECK(trainer->model().parameters_digest() == first.trainers[0]->model().parameters_digest());
  }

  Epoch second(config, plan, data, staleness);
  for (std::size_t r = 0; r < 3; ++r) {
    if (r == 1 && is_replaced) {
      second.trainers[r]->restore(given_by(*first.trainers[0]));
    } else {
      second.trainers[r]->take_over(*first.trainers[r]);
    }
  }
  const std::vector<TrainingResult> results = second.run();
  for (const TrainingResult& result : results) {
    CHECK(result.first_step == 10);
    CHECK(result.finished);
    CHECK(result.parameters_digest == results[0].parameters_digest);
  }
  if (staleness == 0) {  // to the bits of a training without a loss
    test::RankCourse course;
    course.synchrony.staleness = 0;
    CHECK(results[0].parameters_digest == test::train_ranks(config, data, plan, course).digests[0]);
  }
}

TEST_CASE("workers of servers that lost one go on among fewer") {
  TrainingConfig config = test::small_config();
  config.steps = 80;
  const DataSplit data = test::make_split(config, 100, 50);
  Epoch first(config, test::make_server_plan(config, {4, 4, 4}), data, 2);
  first.dies_after = 13;
  first.run();
  Epoch second(config, test::make_server_plan(config, {6, 6}), data, 2);
  second.trainers[0]->take_over(*first.trainers[0]);
  second.trainers[1]->take_over(*first.trainers[2]);
  const std::vector<TrainingResult> results = second.run();
  CHECK(results[0].first_step == 10);
  CHECK(results[0].parameters_digest == results[1].parameters_digest);
  REQUIRE(results[0].final_evaluation.has_value());
  CHECK(results[0].final_evaluation->accuracy > 0.8);
}

}  // namespace rackrail::trainer::asynchronous_loss_test
