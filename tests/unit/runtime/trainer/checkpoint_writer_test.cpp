#include "runtime/trainer/checkpoint_writer.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::checkpoint_writer_test {
namespace {

namespace fs = std::filesystem;

/// Something that one thread reaches and another waits for.
class Milestone {
 public:
  void reach(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    reached_ = step;
    changed_.notify_all();
  }
  /// False when it is not reached for a long time.
  bool wait_for(std::int64_t step) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return reached_ >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t reached_ = 0;
};

/// A state of one tensor whose values say which step it is of.
struct StateOfStep {
  explicit StateOfStep(std::int64_t step) : parameters(4, float(step)), momentum(4, float(-step)) {
    info.step = step;
    info.world_size = 1;
  }
  TrainingState state() const { return {info, tensors, parameters, momentum, {}}; }

  CheckpointInfo info;
  std::vector<ParameterTensor> tensors{{"weight", {4}, 0, 4}};
  std::vector<float> parameters;
  std::vector<float> momentum;
};

CheckpointWriter::Stage stage_in(const fs::path& folder) {
  return
      [folder](Rank self, const TrainingState& state) { return stage_shards(folder, self, state); };
}

CheckpointWriter::Written commit_in(const fs::path& folder) {
  return [folder](std::int64_t step, const std::vector<CheckpointFile>& files) {
    commit_checkpoint(folder, step, files);
  };
}

std::size_t files_below(const fs::path& folder) {
  std::size_t count = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    count += entry.is_regular_file() ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("Training goes on while a slow disk takes a checkpoint, of the state that it was told") {
  TrainingConfig config = test::small_config();
  config.checkpoint_every = 20;
  const DataSplit data = test::make_split(config, 50, 20);
  const plan::Plan plan = test::make_plan(config, {8});
  const rackrail::test::TemporaryDirectory folder;
  LocalExchange exchange;
  const TrainingResult unbroken = Trainer(config, plan, data, exchange, {}, {}).run();

  Milestone training;
  std::vector<bool> went_on;
  CheckpointWriter writer(
      [&](Rank self, const TrainingState& state) {
        if (state.info.step == 20) {
          went_on.push_back(training.wait_for(30));
        }
        return stage_shards(folder.path(), self, state);
      },
      commit_in(folder.path()));
  TrainerHooks hooks;
  hooks.on_step = [&](const StepReport& report) { training.reach(report.step); };
  hooks.on_checkpoint = [&](const TrainingState& state) { writer.save(Rank(0), state); };
  const TrainingResult saved = Trainer(config, plan, data, exchange, {}, hooks).run();
  writer.finish();
  CHECK(went_on == std::vector<bool>{true});
  CHECK(saved.parameters_digest == unbroken.parameters_digest);

  Trainer resumed(config, plan, data, exchange, {}, {});
  resumed.restore(load_checkpoint(folder.path() / "step-00000020", Rank(0), resumed.expectation()));
  CHECK(resumed.step() == 20);
  CHECK(resumed.run().parameters_digest == unbroken.parameters_digest);
  verify_checkpoint(folder.path() / "step-00000040");
}

TEST_CASE("A save waits for the one before, and each writes its own state") {
  const rackrail::test::TemporaryDirectory folder;
  std::atomic<int> writing = 0;
  std::atomic<bool> overlapped = false;
  CheckpointWriter writer(
      [&](Rank self, const TrainingState& state) {
        overlapped = overlapped || ++writing != 1;
        StagedShards staged = stage_shards(folder.path(), self, state);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        --writing;
        return staged;
      },
      commit_in(folder.path()));
  for (std::int64_t step = 1; step <= 5; ++step) {
    const StateOfStep saved(step);
    writer.save(Rank(0), saved.state());
  }
  writer.finish();
  CHECK_FALSE(overlapped);
  for (std::int64_t step = 1; step <= 5; ++step) {
    const auto loaded = load_checkpoint(folder.path() / ("step-0000000" + std::to_string(step)),
                                        Rank(0), CheckpointExpectation());
    CHECK(loaded.parameters == std::vector<float>(4, float(step)));
    CHECK(loaded.momentum == std::vector<float>(4, float(-step)));
  }
}

TEST_CASE("Other ranks than the first write their residuals only") {
  const rackrail::test::TemporaryDirectory folder;
  std::vector<std::string> names;
  CheckpointWriter writer(stage_in(folder.path()),
                          [&](std::int64_t /*step*/, const std::vector<CheckpointFile>& files) {
                            for (const CheckpointFile& file : files) {
                              names.push_back(file.name);
                            }
                          });
  const StateOfStep saved(3);
  TrainingState state = saved.state();
  state.residuals = {{"here", {1, 2}}};
  writer.save(Rank(1), state);
  state.residuals["here"][0] = 9;
  writer.finish();
  CHECK(names == std::vector<std::string>{"rank-1.safetensors"});
  CHECK(files_below(folder.path()) == 1);
}

TEST_CASE("What a checkpoint fails with is thrown once, and the next one is written") {
  const rackrail::test::TemporaryDirectory folder;
  int fails = 2;
  CheckpointWriter writer(
      [&](Rank self, const TrainingState& state) {
        if (fails-- > 0) {
          throw ConfigError(ErrorContext{"", "", "no space left", "space"});
        }
        return stage_shards(folder.path(), self, state);
      },
      commit_in(folder.path()));
  const StateOfStep saved(7);
  writer.save(Rank(0), saved.state());
  CHECK_THROWS_AS(writer.finish(), ConfigError);
  writer.finish();

  writer.save(Rank(0), saved.state());
  const auto notices = [&] {
    try {
      writer.require_no_failure();
      return false;
    } catch (const ConfigError&) {
      return true;
    }
  };
  bool has_thrown = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!has_thrown && std::chrono::steady_clock::now() < end) {
    has_thrown = notices();
    std::this_thread::yield();
  }
  CHECK(has_thrown);
  CHECK_FALSE(notices());

  writer.save(Rank(0), saved.state());
  writer.finish();
  verify_checkpoint(folder.path() / "step-00000007");
}

TEST_CASE("What cannot be told of is a failure, too") {
  const rackrail::test::TemporaryDirectory folder;
  CheckpointWriter writer(stage_in(folder.path()), [](std::int64_t, const auto&) {
    throw PeerLostError("the coordinator is gone");
  });
  const StateOfStep saved(7);
  writer.save(Rank(0), saved.state());
  CHECK_THROWS_AS(writer.save(Rank(0), saved.state()), PeerLostError);
}

TEST_CASE(
    "A checkpoint that is dropped in the middle leaves the one before as the last whole one") {
  const rackrail::test::TemporaryDirectory folder;
  Milestone disk;
  Milestone writing;
  auto writer = std::make_unique<CheckpointWriter>(
      [&](Rank self, const TrainingState& state) {
        StagedShards staged = stage_shards(folder.path(), self, state);
        writing.reach(state.info.step);
        if (state.info.step == 2) {
          disk.wait_for(1);
        }
        return staged;
      },
      commit_in(folder.path()));
  const StateOfStep first(1);
  writer->save(Rank(0), first.state());
  writer->finish();
  const std::size_t files = files_below(folder.path());
  const StateOfStep second(2);
  writer->save(Rank(0), second.state());
  REQUIRE(writing.wait_for(2));
  writer->drop();  // does not wait for the disk
  CHECK(find_latest_valid(folder.path()).path == folder.path() / "step-00000001");

  SECTION("and nothing stays of it") {
    disk.reach(1);
    writer.reset();
    CHECK(files_below(folder.path()) == files);
    CHECK(find_latest_valid(folder.path()).path == folder.path() / "step-00000001");
  }
  SECTION("and the next ones are written while the disk still has it, the same step too") {
    for (const std::int64_t step : {3, 4}) {
      const StateOfStep next(step);
      writer->save(Rank(0), next.state());
      writer->finish();
    }
    CHECK(find_latest_valid(folder.path()).path == folder.path() / "step-00000004");
    disk.reach(1);
    writer.reset();
    verify_checkpoint(folder.path() / "step-00000004");
    CHECK(find_latest_valid(folder.path()).path == folder.path() / "step-00000004");
  }
}

TEST_CASE("A disk is waited for only as long as there is a reason to") {
  const rackrail::test::TemporaryDirectory folder;
  Milestone disk;
  std::atomic<bool> is_lost = false;
  std::optional<CheckpointWriter> writer;
  writer.emplace(
      [&](Rank self, const TrainingState& state) {
        if (state.info.step == 1) {
          disk.wait_for(1);
        }
        return stage_shards(folder.path(), self, state);
      },
      commit_in(folder.path()),
      [&] {
        if (is_lost) {
          throw PeerLostError("rank 2 was lost");
        }
      });
  const StateOfStep first(1);
  const StateOfStep second(2);
  writer->save(Rank(0), first.state());
  is_lost = true;
  CHECK_THROWS_AS(writer->save(Rank(0), second.state()), PeerLostError);
  CHECK_THROWS_AS(writer->finish(), PeerLostError);
  is_lost = false;
  writer->drop();
  writer->save(Rank(0), second.state());
  writer->finish();
  verify_checkpoint(folder.path() / "step-00000002");
  disk.reach(1);
  writer.reset();
  CHECK(find_latest_valid(folder.path()).path == folder.path() / "step-00000002");
}

}  // namespace rackrail::trainer::checkpoint_writer_test
