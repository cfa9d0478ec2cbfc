#include "runtime/trainer/trainer.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <utility>

#include "plan/format.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::trainer_test {
namespace {

TEST_CASE("One rank learns, and says what it did") {
  TrainingConfig config = test::small_config();
  config.evaluate_every = 16;
  const DataSplit data = test::make_split(config, 120, 60);
  LocalExchange exchange;
  std::vector<StepReport> reports;
  TrainerHooks hooks;
  hooks.on_step = [&](const StepReport& report) { reports.push_back(report); };
  TrainerOptions options;
  options.timeline_step = 7;
  Trainer trainer(config, test::make_plan(config, {8}), data, exchange, options, hooks);
  const TrainingResult result = trainer.run();

  CHECK(result.finished);
  CHECK(result.first_step == 0);
  CHECK(result.steps == 40);
  REQUIRE(reports.size() == 40);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const StepReport& report = reports[i];
    CHECK(report.step == static_cast<std::int64_t>(i) + 1);
    CHECK(report.samples == 8);
    CHECK(report.learning_rate == trainer.settings().learning_rate.at(report.step - 1));
    CHECK(report.evaluation.has_value() == (report.step % 16 == 0));
    CHECK(report.times.step >= report.times.compute() + report.times.synchronise);
  }
  CHECK(reports.back().loss < 0.5 * reports.front().loss);
  CHECK(result.final_loss == reports.back().loss);
  REQUIRE(result.final_evaluation);
  CHECK(result.final_evaluation->samples == 60);
  CHECK(result.final_evaluation->accuracy > 0.8);
  CHECK(result.summary.steps == 40 - options.warmup_steps);
  CHECK(result.summary.step_time > Duration());
  CHECK(result.summary.compute_time > Duration());
  CHECK(result.parameters_digest == trainer.model().parameters_digest());

  // One pass, the wait, the update, and each of six buckets.
  CHECK(result.timeline.size() == 4 + 6);
  for (const plan::TimelineEvent& event : result.timeline) {
    CHECK(event.start >= Duration());
    CHECK(event.end >= event.start);
    CHECK(event.track.starts_with("rank 0 "));
  }
}

TEST_CASE("What the plan says about batches counts more than the configuration") {
  TrainingConfig config = test::small_config();
  config.base_learning_rate = 0.1;
  config.base_batch = 16;
  config.warmup_steps = 5;
  plan::Plan plan = test::make_plan(config, {8, 24});
  plan.batch.accumulation = 2;
  EffectiveSettings settings = effective_settings(config, plan, 1000);
  CHECK(settings.global_batch == 64);
  CHECK(settings.learning_rate.peak == Approx(0.4));
  CHECK(settings.learning_rate.warmup_steps == 5);
  CHECK(settings.total_steps == 40);
  plan.batch.learning_rate = 0.25;
  plan.batch.warmup_steps = 9;
  config.steps.reset();
  config.epochs = 2;
  settings = effective_settings(config, plan, 960);
  CHECK(settings.learning_rate.peak == 0.25);
  CHECK(settings.learning_rate.warmup_steps == 9);
  CHECK(settings.total_steps == 30);
  plan.batch.local_batch = {};
  plan.batch.accumulation = 1;
  CHECK(effective_settings(config, plan, 960).local_batch == std::vector<std::int64_t>{8, 8});
  plan.batch.local_batch = {4};
  CHECK_THROWS_AS(effective_settings(config, plan, 960), PlanError);
}

TEST_CASE("Training does not depend on how tensors are put into buckets") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  const auto digest = [&](const std::vector<std::vector<std::uint32_t>>& buckets) {
    LocalExchange exchange;
    Trainer trainer(config, test::make_plan(config, {8}, buckets), data, exchange, {}, {});
    return trainer.run().parameters_digest;
  };
  const std::string expected = digest({{0}, {1}, {2}, {3}, {4}, {5}});
  CHECK(digest({{0, 1, 2, 3, 4, 5}}) == expected);
  CHECK(digest({{0, 2, 4}, {1, 3, 5}}) == expected);
  CHECK(digest({{3, 5}, {0, 1, 4}, {2}}) == expected);
}

TEST_CASE("Several passes make one step") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  const auto losses = [&](std::int64_t local_batch, std::int64_t accumulation) {
    plan::Plan plan = test::make_plan(config, {local_batch});
    plan.batch.accumulation = accumulation;
    LocalExchange exchange;
    std::vector<double> values;
    TrainerHooks hooks;
    hooks.on_step = [&](const StepReport& report) { values.push_back(report.loss); };
    Trainer(config, plan, data, exchange, {}, hooks).run();
    return values;
  };
  const std::vector<double> expected = losses(12, 1);
  const std::vector<double> accumulated = losses(3, 4);
  REQUIRE(accumulated.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(accumulated[i] == Approx(expected[i]).epsilon(1e-3));
  }
}

TEST_CASE("A resumed run ends with the same bits as an unbroken one") {
  for (const char* kind : {"mlp", "cnn"}) {
    CAPTURE(kind);
    TrainingConfig config = test::small_config();
    config.model.kind = kind;
    config.model.channels =
        config.model.kind == "cnn" ? std::vector<std::int64_t>{2, 3} : std::vector<std::int64_t>{};
    config.data.max_shift = 1;
    config.checkpoint_every = 20;
    const DataSplit data = test::make_split(config, 50, 20);  // 40 steps of 8 straddle epochs
    const plan::Plan plan = test::make_plan(config, {8});

    LocalExchange exchange;
    std::vector<double> unbroken_losses;
    TrainerHooks record;
    record.on_step = [&](const StepReport& report) { unbroken_losses.push_back(report.loss); };
    const TrainingResult unbroken = Trainer(config, plan, data, exchange, {}, record).run();

    const rackrail::test::TemporaryDirectory folder;
    TrainerHooks save;
    std::vector<double> losses;
    save.on_step = [&](const StepReport& report) { losses.push_back(report.loss); };
    save.on_checkpoint = [&](const TrainingState& state) {
      commit_checkpoint(folder.path(), state.info.step,
                        write_shards(folder.path(), Rank(0), state));
    };
    {
      Trainer first(config, plan, data, exchange, {}, save);
      first.request_stop_after(20);
      const TrainingResult half = first.run();
      CHECK_FALSE(half.finished);
      CHECK(half.steps == 20);
      CHECK(half.parameters_digest != unbroken.parameters_digest);
    }
    Trainer second(config, plan, data, exchange, {}, save);
    const FoundCheckpoint found = find_latest_valid(folder.path());
    REQUIRE(found.path);
    second.restore(load_checkpoint(*found.path, Rank(0), second.expectation()));
    CHECK(second.state().info.step == 20);
    CHECK(second.state().info.position == 160);
    CHECK(second.state().info.epoch == 3);
    const TrainingResult resumed = second.run();
    CHECK(resumed.finished);
    CHECK(resumed.first_step == 20);
    CHECK(resumed.steps == 40);
    CHECK(resumed.parameters_digest == unbroken.parameters_digest);
    CHECK(losses == unbroken_losses);
  }
}

TEST_CASE("A checkpoint of another training is refused") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 50, 20);
  const rackrail::test::TemporaryDirectory folder;
  LocalExchange exchange;
  Trainer trainer(config, test::make_plan(config, {8}), data, exchange, {}, {});
  const auto path =
      commit_checkpoint(folder.path(), 0, write_shards(folder.path(), Rank(0), trainer.state()));
  const auto refused = [&](const TrainingConfig& other_config, const DataSplit& other_data,
                           std::int64_t batch) {
    Trainer other(other_config, test::make_plan(other_config, {batch}), other_data, exchange, {},
                  {});
    return test::context_of<ConfigError>(
               [&] { load_checkpoint(path, Rank(0), other.expectation()); })
        .expected;
  };
  TrainingConfig wider = config;
  wider.model.hidden = {9, 6};
  CHECK(refused(wider, data, 8).starts_with("model "));
  TrainingConfig reseeded = config;
  reseeded.seed = 99;
  CHECK(refused(reseeded, data, 8).starts_with("training "));
  CHECK(refused(config, test::make_split(config, 51, 20), 8).starts_with("training "));
  TrainingConfig without_momentum = config;
  without_momentum.optimizer.momentum = 0.25;
  CHECK(refused(without_momentum, data, 8) == "0.25, as the training has it");
  TrainingConfig faster = config;
  faster.base_learning_rate *= 2;
  CHECK(refused(faster, data, 8).ends_with(", as the training has it"));
  CHECK(refused(config, data, 9).starts_with("plan "));
}

TEST_CASE("Data of another shape is refused") {
  const TrainingConfig config = test::small_config();
  TrainingConfig other = config;
  other.data.format.image = {2, 4, 1};
  const DataSplit data = test::make_split(other, 50, 20);
  LocalExchange exchange;
  CHECK_THROWS_AS(Trainer(config, test::make_plan(config, {8}), data, exchange, {}, {}),
                  ConfigError);
}

TEST_CASE("A plan for another model is refused") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 50, 20);
  LocalExchange exchange;
  TrainingConfig other = config;
  other.model.hidden = {9, 6};
  CHECK_THROWS_AS(Trainer(config, test::make_plan(other, {8}), data, exchange, {}, {}), PlanError);
  plan::Plan plan = test::make_plan(config, {8});
  plan.workload_digest = "0123456789abcdef";
  CHECK(test::context_of<PlanError>([&] { Trainer(config, plan, data, exchange, {}, {}); }).where ==
        "workload_digest");
  plan = test::make_plan(config, {8, 8});
  TrainerOptions options;
  options.self = Rank(2);
  CHECK_THROWS_AS(Trainer(config, plan, data, exchange, options, {}), PlanError);
}

/// Makes the sum of one step useless, as a broken device or an overflow would.
class SpoilingExchange final : public GradientExchange {
 public:
  explicit SpoilingExchange(std::uint32_t bad_step) : bad_step_(bad_step) {}
  void begin_step(std::uint32_t step) override { step_ = step; }
  void launch(BucketId /*bucket*/, std::span<float> data) override {
    if (step_ == bad_step_) {
      data.back() = std::numeric_limits<float>::infinity();
    }
  }
  void wait_all() override {}

 private:
  std::uint32_t bad_step_;
  std::uint32_t step_ = 0;
};

TEST_CASE("A step whose gradient is not finite is skipped and counted") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  SpoilingExchange exchange(6);
  std::vector<StepReport> reports;
  std::vector<std::string> digests;
  Trainer* running = nullptr;
  TrainerHooks hooks;
  hooks.on_step = [&](const StepReport& report) {
    reports.push_back(report);
    digests.push_back(running->model().parameters_digest());
  };
  Trainer trainer(config, test::make_plan(config, {8}), data, exchange, {}, hooks);
  running = &trainer;
  const TrainingResult result = trainer.run();
  CHECK(result.steps == 40);
  CHECK(result.skipped_steps == 1);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    CHECK(reports[i].skipped == (i == 6));
  }
  CHECK(digests[6] == digests[5]);
  CHECK(digests[7] != digests[6]);
  CHECK(trainer.state().info.skipped_steps == 1);
}

/// Fails like an executor whose peer is gone.
class LosingExchange final : public GradientExchange {
 public:
  void begin_step(std::uint32_t step) override { step_ = step; }
  void launch(BucketId /*bucket*/, std::span<float> data) override {
    if (step_ == 3) {
      std::ranges::fill(data, 1e9F);
    }
  }
  void wait_all() override {
    if (step_ == 3) {
      throw PeerLostError("rank 1 was lost");
    }
  }

 private:
  std::uint32_t step_ = 0;
};

TEST_CASE("A training that is given in samples goes on with steps of another size") {
  TrainingConfig config = test::small_config();
  config.decay = Decay::kCosine;
  config.warmup_steps = 4;
  const DataSplit data = test::make_split(config, 120, 60);
  LocalExchange exchange;
  std::vector<StepReport> reports;
  TrainerHooks hooks;
  hooks.on_step = [&](const StepReport& report) { reports.push_back(report); };
  TrainerOptions options;
  options.total_samples = 320;
  const plan::Plan plan = test::make_plan(config, {8});
  Trainer small(config, plan, data, exchange, options, hooks);
  small.request_stop_after(20);
  CHECK_FALSE(small.run().finished);

  SECTION("of the same size: as if nothing had happened") {
    Trainer same(config, plan, data, exchange, options, hooks);
    same.take_over(small);
    const TrainingResult result = same.run();
    CHECK(result.steps == 40);
    const std::vector<StepReport> both = std::exchange(reports, {});
    LocalExchange other;
    Trainer unbroken(config, plan, data, other, {}, hooks);
    CHECK(unbroken.run().parameters_digest == result.parameters_digest);
    for (std::size_t i = 0; i < both.size(); ++i) {
      CHECK(both[i].learning_rate == reports.at(i).learning_rate);
    }
  }
  SECTION("three times as large: a third of the steps that were left, the last one whole") {
    Trainer large(config, test::make_plan(config, {24}), data, exchange, options, hooks);
    large.take_over(small);
    const TrainingResult result = large.run();
    CHECK(result.finished);
    CHECK(result.steps == 27);  // 160 samples are left
    CHECK(large.state().info.position == 160 + 7 * 24);
    // The same place in the schedule, at three times the rate.
    const LearningRate& before = small.settings().learning_rate;
    const LearningRate& after = large.settings().learning_rate;
    CHECK(after.peak == Approx(3 * before.peak));
    CHECK(after.total_steps == 14);
    CHECK(reports[20].learning_rate == after.at(160 / 24));
    CHECK(reports[26].learning_rate == after.at((160 + 6 * 24) / 24));
  }
}

TEST_CASE("A lost peer ends the run with the parameters of the latest whole step") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  LosingExchange exchange;
  std::string latest;
  Trainer* running = nullptr;
  TrainerHooks hooks;
  hooks.on_step = [&](const StepReport&) { latest = running->model().parameters_digest(); };
  Trainer trainer(config, test::make_plan(config, {8}), data, exchange, {}, hooks);
  running = &trainer;
  CHECK_THROWS_AS(trainer.run(), PeerLostError);
  CHECK(trainer.state().info.step == 3);
  CHECK(trainer.model().parameters_digest() == latest);
}

TEST_CASE("Both shipped models learn the digits in some seconds") {
  // Narrower than shipped, so that the sanitizers' builds take seconds; the accuracy of the shipped
  // ones is in configs/training.
  const std::filesystem::path configs = rackrail::test::source_dir() / "configs";
  for (const char* name : {"digits-mlp", "digits-cnn"}) {
    CAPTURE(name);
    TrainingConfig config = read_training_config(name, configs);
    config.model.hidden = {64};
    config.model.channels.assign(config.model.channels.size(), 8);
    config.steps = 150;
    const DataSplit data = load_data(config.data);
    CHECK(data.train.size() == 1438);
    CHECK(data.test.size() == 359);
    LocalExchange exchange;
    Trainer trainer(config, test::make_plan(config, {128}), data, exchange, {}, {});
    const TrainingResult result = trainer.run();
    REQUIRE(result.final_evaluation);
    CHECK(result.final_evaluation->accuracy > 0.9);
  }
}

}  // namespace
}  // namespace rackrail::trainer::trainer_test
