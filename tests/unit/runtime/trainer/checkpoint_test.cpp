#include "runtime/trainer/checkpoint.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>

#include "runtime/trainer/manifest.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::checkpoint_test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kRanks = 2;

/// A state whose values depend on the step.
struct Example {
  explicit Example(std::int64_t step)
      : parameters{float(step), 1, 2, 3, 4, 5}, momentum{-1, -2, -3, -4, -5, float(-step)} {
    info.step = step;
    info.position = step * 32;
    info.seed = 3;
    info.world_size = kRanks;
    info.plan_digest = std::string(64, 'p');
    info.model_digest = std::string(64, 'm');
    info.training_digest = std::string(64, 't');
    info.optimizer.kind = "sgd";
    info.optimizer.momentum = 0.9;
  }

  TrainingState state(std::size_t rank) const {
    const auto value = static_cast<float>(rank);
    return {info, tensors, parameters, momentum, {{"bucket 0 transfer 1", {value, 0.5F}}}};
  }

  std::vector<CheckpointFile> write_all(const fs::path& folder) const {
    std::vector<CheckpointFile> files;
    for (std::size_t r = 0; r < kRanks; ++r) {
      for (CheckpointFile& file : write_shards(folder, Rank(r), state(r))) {
        files.push_back(std::move(file));
      }
    }
    return files;
  }

  fs::path save(const fs::path& folder) const {
    return commit_checkpoint(folder, info.step, write_all(folder));
  }

  CheckpointInfo info;
  std::vector<ParameterTensor> tensors{{"fc.bias", {2}, 0, 2}, {"fc.weight", {2, 2}, 2, 4}};
  std::vector<float> parameters;
  std::vector<float> momentum;
};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

TEST_CASE("A checkpoint gives back what was saved, to each rank its own") {
  const rackrail::test::TemporaryDirectory folder;
  const Example example(120);
  const fs::path path = example.save(folder.path());
  CHECK(path == folder.path() / "step-00000120");
  CHECK(names_in(path) == std::vector<std::string>{"manifest.json", "model.safetensors",
                                                   "rank-0.safetensors", "rank-1.safetensors"});
  CHECK(names_in(folder.path()).size() == 1);

  const FoundCheckpoint found = find_latest_valid(folder.path());
  REQUIRE(found.path == path);
  CHECK(found.notes.empty());
  for (std::size_t r = 0; r < kRanks; ++r) {
    const LoadedCheckpoint loaded = load_checkpoint(path, Rank(r), {});
    CHECK(loaded.info.step == 120);
    CHECK(loaded.info.position == 120 * 32);
    CHECK(loaded.parameters == example.parameters);
    CHECK(loaded.momentum == example.momentum);
    REQUIRE(loaded.tensors.size() == 2);
    CHECK(loaded.tensors[1].name == "fc.weight");
    CHECK(loaded.tensors[1].shape == std::vector<std::int64_t>{2, 2});
    CHECK(loaded.tensors[1].offset == 2);
    CHECK(loaded.residuals == example.state(r).residuals);
  }
  CHECK(load_checkpoint(path, Rank(7), {}).residuals.empty());
}

TEST_CASE("A checkpoint counts only once it is committed") {
  const rackrail::test::TemporaryDirectory folder;
  CHECK_FALSE(find_latest_valid(folder.path() / "missing").path);
  Example(100).save(folder.path());
  const Example later(200);
  const std::vector<CheckpointFile> files = later.write_all(folder.path());
  const FoundCheckpoint before = find_latest_valid(folder.path());
  CHECK(before.path == folder.path() / "step-00000100");
  REQUIRE(before.notes.size() == 1);
  CHECK(before.notes[0].find("step-00000200.partial") != std::string::npos);
  commit_checkpoint(folder.path(), 200, files);
  CHECK(find_latest_valid(folder.path()).path == folder.path() / "step-00000200");
}

TEST_CASE("A commit refuses files that are missing, foreign or left over") {
  const rackrail::test::TemporaryDirectory folder;
  const Example example(50);
  const fs::path partial = folder.path() / "step-00000050.partial";
  const std::vector<CheckpointFile> all = example.write_all(folder.path());
  const auto refused = [&](const std::vector<CheckpointFile>& files) {
    ErrorContext context =
        test::context_of<ConfigError>([&] { commit_checkpoint(folder.path(), 50, files); });
    CHECK_FALSE(fs::exists(partial / "manifest.json"));
    CHECK_FALSE(fs::exists(folder.path() / "step-00000050"));
    return context;
  };
  // A rank that did not report, and no rank 0.
  CHECK(refused({all[0], all[1]}).found == "0 times rank-1.safetensors");
  CHECK(refused({all[1], all[2]}).found == "no model.safetensors");
  // A rank that reported something else than what lies there: left over from an earlier run.
  Example other(50);
  std::vector<CheckpointFile> reported = all;
  other.parameters[0] = 7;
  reported[0] = write_shards(folder.path() / "elsewhere", Rank(0), other.state(0))[0];
  CHECK(refused(reported).where == "sha256");
  fs::remove(partial / "rank-1.safetensors");
  CHECK(refused(all).file == (partial / "rank-1.safetensors").string());
}

TEST_CASE("Damage is found, named, and an earlier checkpoint is taken") {
  const auto damaged = [](const auto& damage) {
    const rackrail::test::TemporaryDirectory folder;
    Example(10).save(folder.path());
    const fs::path path = Example(20).save(folder.path());
    damage(path);
    const FoundCheckpoint found = find_latest_valid(folder.path());
    CHECK(found.path == folder.path() / "step-00000010");
    REQUIRE(found.notes.size() == 1);
    ErrorContext context =
        test::context_of<ConfigError>([&] { load_checkpoint(path, Rank(0), {}); });
    CHECK(found.notes[0].find(context.found) != std::string::npos);
    return context;
  };
  ErrorContext context =
      damaged([](const fs::path& path) { fs::resize_file(path / "model.safetensors", 100); });
  CHECK(context.file.ends_with("step-00000020/model.safetensors"));
  CHECK(context.found == "100 bytes");
  CHECK(context.expected.ends_with(" bytes"));

  context = damaged([](const fs::path& path) { fs::remove(path / "rank-1.safetensors"); });
  CHECK(context.file.ends_with("rank-1.safetensors"));

  context = damaged([](const fs::path& path) {
    std::string content = test::read_text(path / "model.safetensors");
    content.back() = static_cast<char>(content.back() ^ 1);
    test::write_text(path / "model.safetensors", content);
  });
  CHECK(context.where == "sha256");

  context = damaged([](const fs::path& path) { fs::resize_file(path / "manifest.json", 40); });
  CHECK(context.file.ends_with("manifest.json"));
  context = damaged([](const fs::path& path) { fs::remove(path / "manifest.json"); });
  CHECK(context.file.ends_with("manifest.json"));
}

TEST_CASE("A checkpoint of something else is refused in one clear line") {
  const rackrail::test::TemporaryDirectory folder;
  const fs::path path = Example(10).save(folder.path());
  const std::string m(64, 'm');
  const std::string p(64, 'p');
  const std::string t(64, 't');
  CHECK_NOTHROW(load_checkpoint(path, Rank(0), {m, p, t}));
  const auto found = [&](const CheckpointExpectation& expected) {
    const ErrorContext context =
        test::context_of<ConfigError>([&] { load_checkpoint(path, Rank(0), expected); });
    CHECK(context.file == path.string());
    return context.found + " / " + context.expected;
  };
  CHECK(found({std::string(64, 'x'), p, t}) ==
        "a checkpoint of model mmmmmmmmmmmm / model xxxxxxxxxxxx");
  CHECK(found({m, std::string(64, 'x'), t}).starts_with("a checkpoint of plan pppp"));
  CHECK(found({m, p, std::string(64, 'x')}).starts_with("a checkpoint of training tttt"));
}

TEST_CASE("A checkpoint of another optimiser is refused in one line that says what is another") {
  const rackrail::test::TemporaryDirectory folder;
  const Example example(10);
  const fs::path path = example.save(folder.path());
  const CheckpointInfo& info = example.info;
  CheckpointExpectation expected{info.model_digest, info.plan_digest, std::string(64, 'x'),
                                 info.optimizer};
  expected.optimizer.momentum = 0.5;
  const auto refused = [&] {
    return test::context_of<ConfigError>([&] { load_checkpoint(path, Rank(0), expected); });
  };
  // Not by the digest of the training, which is another, too, but says nothing.
  CHECK(refused().file == (path / "manifest.json").string());
  CHECK(refused().where == "optimizer.momentum");
  CHECK(refused().found == "0.9");
  CHECK(refused().expected == "0.5, as the training has it");
  expected.optimizer.kind.clear();  // any
  CHECK(refused().found.starts_with("a checkpoint of training tttt"));
  expected.optimizer = info.optimizer;
  expected.training_digest = info.training_digest;
  CHECK(load_checkpoint(path, Rank(0), expected).info.optimizer.momentum == 0.9);
}

/// Changes the manifest of a checkpoint, on which no digest lies.
void rewrite_manifest(const fs::path& checkpoint,
                      const std::function<void(CheckpointManifest&)>& change) {
  const fs::path path = checkpoint / "manifest.json";
  CheckpointManifest manifest = parse_manifest(test::read_text(path), path.string());
  change(manifest);
  test::write_text(path, to_json(manifest));
}

TEST_CASE("A manifest says what state its files hold, and is held to it") {
  const rackrail::test::TemporaryDirectory folder;
  const fs::path path = Example(10).save(folder.path());
  const CheckpointManifest manifest = verify_checkpoint(path);
  REQUIRE(manifest.optimizer_state.has_value());
  CHECK(manifest.optimizer_state->file == "model.safetensors");
  CHECK(manifest.optimizer_state->arrays == 2);
  CHECK(manifest.optimizer_state->elements == 6);
  REQUIRE(manifest.error_feedback.size() == kRanks);
  for (std::size_t r = 0; r < kRanks; ++r) {
    CHECK(manifest.error_feedback[r].file == "rank-" + std::to_string(r) + ".safetensors");
    CHECK(manifest.error_feedback[r].arrays == 1);
    CHECK(manifest.error_feedback[r].elements == 2);
  }
  const auto refused = [&](std::size_t rank) {
    return test::context_of<ConfigError>([&] { load_checkpoint(path, Rank(rank), {}); });
  };
  rewrite_manifest(path, [](CheckpointManifest& one) { one.error_feedback[1].elements = 3; });
  CHECK_NOTHROW(load_checkpoint(path, Rank(0), {}));
  CHECK(refused(1).where == "error_feedback");
  CHECK(refused(1).found == "1 arrays with 3 elements in rank-1.safetensors");
  CHECK(refused(1).expected.starts_with("1 arrays with 2 elements in rank-1.safetensors"));
  rewrite_manifest(
      path, [](CheckpointManifest& one) { one.error_feedback[1].file = "rank-0.safetensors"; });
  CHECK(refused(0).where == "error_feedback[1].file");
  rewrite_manifest(path, [](CheckpointManifest& one) { one.error_feedback.pop_back(); });
  CHECK(refused(0).where == "error_feedback");
  CHECK(refused(0).found == "1 ranks");
  rewrite_manifest(path, [](CheckpointManifest& one) {
    one.error_feedback.clear();
    one.optimizer_state->arrays = 1;
  });
  CHECK(refused(0).where == "optimizer_state");
  CHECK(refused(0).expected.starts_with("2 arrays with 6 elements in model.safetensors"));
  rewrite_manifest(path, [](CheckpointManifest& one) { one.optimizer_state->file = "other"; });
  CHECK(refused(0).where == "optimizer_state.file");
}

TEST_CASE("A checkpoint of an older version, which says of neither, is gone on from") {
  const rackrail::test::TemporaryDirectory folder;
  Example example(10);
  const CheckpointExpectation expected{example.info.model_digest, example.info.plan_digest,
                                       example.info.training_digest, example.info.optimizer};
  example.info.optimizer = {};
  const fs::path path = example.save(folder.path());
  rewrite_manifest(path, [](CheckpointManifest& one) {
    one.optimizer_state.reset();
    one.error_feedback.clear();
  });
  const LoadedCheckpoint loaded = load_checkpoint(path, Rank(1), expected);
  CHECK(loaded.parameters == example.parameters);
  CHECK(loaded.residuals == example.state(1).residuals);
}

TEST_CASE("Only the latest are kept, and only after a success") {
  const rackrail::test::TemporaryDirectory folder;
  for (std::int64_t step = 10; step <= 70; step += 10) {
    Example(step).save(folder.path());
  }
  const std::vector<std::string> kept{"step-00000030", "step-00000040", "step-00000050",
                                      "step-00000060", "step-00000070"};
  CHECK(names_in(folder.path()) == kept);
  // A commit that fails removes nothing; what it left is removed by the next that succeeds.
  std::vector<CheckpointFile> files = Example(80).write_all(folder.path());
  files.pop_back();
  CHECK_THROWS_AS(commit_checkpoint(folder.path(), 80, files), ConfigError);
  CHECK(names_in(folder.path()).size() == 6);
  Example(90).save(folder.path());
  CHECK(names_in(folder.path()) == std::vector<std::string>{"step-00000040", "step-00000050",
                                                            "step-00000060", "step-00000070",
                                                            "step-00000090"});
}

TEST_CASE("Saving a step again replaces it") {
  const rackrail::test::TemporaryDirectory folder;
  Example(10).save(folder.path());
  Example again(10);
  again.parameters[1] = 99;
  const fs::path path = again.save(folder.path());
  CHECK(names_in(folder.path()) == std::vector<std::string>{"step-00000010"});
  CHECK(load_checkpoint(path, Rank(0), {}).parameters == again.parameters);
}

}  // namespace
}  // namespace rackrail::trainer::checkpoint_test
