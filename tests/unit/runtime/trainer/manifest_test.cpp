#include "runtime/trainer/manifest.hpp"

#include <catch2/catch.hpp>

#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::manifest_test {
namespace {

CheckpointInfo example_info() {
  CheckpointInfo info;
  info.step = 120;
  info.position = 15360;
  info.epoch = 10;
  info.skipped_steps = 1;
  info.seed = 0xffffffffffffffffULL;
  info.world_size = 2;
  info.plan_digest = "aa";
  info.model_digest = "bb";
  info.training_digest = "cc";
  info.optimizer = {.kind = "sgd",
                    .momentum = 0.9,
                    .weight_decay = 1e-4,
                    .clip_norm = 5,
                    .base_learning_rate = 0.1,
                    .base_batch = 128,
                    .warmup_steps = 20,
                    .decay = "cosine"};
  return info;
}

void check_equal(const CheckpointInfo& a, const CheckpointInfo& b) {
  CHECK(a.step == b.step);
  CHECK(a.position == b.position);
  CHECK(a.epoch == b.epoch);
  CHECK(a.skipped_steps == b.skipped_steps);
  CHECK(a.seed == b.seed);
  CHECK(a.world_size == b.world_size);
  CHECK(a.plan_digest == b.plan_digest);
  CHECK(a.model_digest == b.model_digest);
  CHECK(a.training_digest == b.training_digest);
  CHECK(a.optimizer.kind == b.optimizer.kind);
  CHECK(a.optimizer.momentum == b.optimizer.momentum);
  CHECK(a.optimizer.weight_decay == b.optimizer.weight_decay);
  CHECK(a.optimizer.clip_norm == b.optimizer.clip_norm);
  CHECK(a.optimizer.base_learning_rate == b.optimizer.base_learning_rate);
  CHECK(a.optimizer.base_batch == b.optimizer.base_batch);
  CHECK(a.optimizer.warmup_steps == b.optimizer.warmup_steps);
  CHECK(a.optimizer.decay == b.optimizer.decay);
}

CheckpointManifest example_manifest() {
  return {example_info(),
          {{"model.safetensors", 12, "dd"}},
          StoredState{"model.safetensors", 6, 8192},
          {{"rank-0.safetensors", 3, 4096}, {"rank-1.safetensors", 0, 0}}};
}

TEST_CASE("A manifest comes back as it was") {
  const CheckpointManifest manifest = example_manifest();
  const CheckpointManifest back = parse_manifest(to_json(manifest), "manifest.json");
  check_equal(back.info, manifest.info);
  REQUIRE(back.files.size() == 1);
  CHECK(back.files[0].name == "model.safetensors");
  CHECK(back.files[0].bytes == 12);
  CHECK(back.files[0].sha256 == "dd");
  REQUIRE(back.optimizer_state.has_value());
  CHECK(back.optimizer_state->file == "model.safetensors");
  CHECK(back.optimizer_state->arrays == 6);
  CHECK(back.optimizer_state->elements == 8192);
  REQUIRE(back.error_feedback.size() == 2);
  CHECK(back.error_feedback[0].file == "rank-0.safetensors");
  CHECK(back.error_feedback[0].arrays == 3);
  CHECK(back.error_feedback[0].elements == 4096);
  CHECK(back.error_feedback[1].arrays == 0);
}

TEST_CASE("A manifest names plan, epoch, optimiser and error feedback") {
  const std::string text = to_json(example_manifest());
  for (const char* const part :
       {"\"plan_digest\": \"aa\"", "\"epoch\": 10", "\"optimizer\": {", "\"kind\": \"sgd\"",
        "\"momentum\": 0.9", "\"clip_norm\": 5.0", "\"optimizer_state\": {",
        "\"error_feedback\": [", "\"file\": \"rank-0.safetensors\""}) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("No clipping is another thing than clipping at nothing") {
  CheckpointManifest manifest = example_manifest();
  manifest.info.optimizer.clip_norm.reset();
  const CheckpointManifest back = parse_manifest(to_json(manifest), "manifest.json");
  CHECK_FALSE(back.info.optimizer.clip_norm.has_value());
  CHECK_FALSE(parse_metadata(to_metadata(manifest.info), "x").optimizer.clip_norm.has_value());
  OptimizerInfo clipped = manifest.info.optimizer;
  clipped.clip_norm = 0;
  const auto other = optimizer_difference(back.info.optimizer, clipped);
  REQUIRE(other.has_value());
  CHECK(other->key == "optimizer.clip_norm");
  CHECK(other->found == "null");
  CHECK(other->expected == "0.0");
  CHECK_FALSE(optimizer_difference(clipped, clipped).has_value());
}

TEST_CASE("A manifest of an older version has neither optimiser nor error feedback") {
  CheckpointManifest manifest = example_manifest();
  manifest.info.optimizer = {};
  manifest.optimizer_state.reset();
  manifest.error_feedback.clear();
  std::string text = to_json(manifest);
  CHECK(text.find("optimizer") == std::string::npos);
  const std::string empty = "  \"error_feedback\": [],\n";
  const std::size_t at = text.find(empty);
  REQUIRE(at != std::string::npos);
  text.erase(at, empty.size());
  const CheckpointManifest back = parse_manifest(text, "manifest.json");
  check_equal(back.info, manifest.info);
  CHECK_FALSE(back.optimizer_state.has_value());
  CHECK(back.error_feedback.empty());
  CHECK(to_metadata(manifest.info).count("optimizer") == 0);
}

TEST_CASE("Metadata come back as they were, and miss nothing") {
  const Metadata metadata = to_metadata(example_info());
  check_equal(parse_metadata(metadata, "x"), example_info());
  for (const auto& [key, value] : metadata) {
    if (key == "format" || key == "optimizer") {
      continue;
    }
    Metadata without = metadata;
    without.erase(key);
    CHECK(test::context_of<ConfigError>([&] { parse_metadata(without, "x"); }).where ==
          "__metadata__." + key);
  }
  Metadata wrong = metadata;
  wrong["step"] = "12x";
  CHECK(test::context_of<ConfigError>([&] { parse_metadata(wrong, "x"); }).found == "'12x'");
  Metadata older = metadata;
  older.erase("optimizer");
  CHECK(parse_metadata(older, "x").optimizer.kind.empty());
  wrong = metadata;
  for (const char* const text : {"", "sgd", "{", "[]", "{\"kind\": \"sgd\"}"}) {
    wrong["optimizer"] = text;
    CHECK(test::context_of<ConfigError>([&] {
            parse_metadata(wrong, "x");
          }).where.starts_with("__metadata__.optimizer"));
  }
}

TEST_CASE("A manifest that is no such thing is refused by field") {
  const std::string good = to_json(example_manifest());
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    const ErrorContext context =
        test::context_of<ConfigError>([&] { parse_manifest(text, "manifest.json"); });
    CHECK(context.file == "manifest.json");
    return context.where;
  };
  CHECK(refused("\"format_version\": 1", "\"format_version\": 2") == "format_version");
  CHECK(refused("\"step\": 120", "\"step\": -1") == "step");
  CHECK(refused("\"step\": 120,", "") == "step");
  CHECK(refused("\"plan_digest\": \"aa\"", "\"plan_digest\": 1") == "plan_digest");
  CHECK(refused("\"name\": \"model", "\"name\": \"../model") == "files[0].name");
  CHECK(refused("\"bytes\": 12", "\"bytes\": \"12\"") == "files[0].bytes");
  CHECK(refused("\"momentum\": 0.9", "\"momentum\": \"0.9\"") == "optimizer.momentum");
  CHECK(refused("\"clip_norm\": 5.0", "\"clip_norm\": {}") == "optimizer.clip_norm");
  CHECK(refused("\"kind\": \"sgd\",", "") == "optimizer.kind");
  CHECK(refused("\"arrays\": 6", "\"arrays\": true") == "optimizer_state.arrays");
  CHECK(refused("\"arrays\": 3", "\"arrays\": -3") == "error_feedback[0].arrays");
  CHECK(refused("\"error_feedback\": [", "\"error_feedback\": 1, \"old\": [") == "error_feedback");
  for (std::size_t size = 0; size + 2 < good.size(); ++size) {
    REQUIRE_THROWS_AS(parse_manifest(good.substr(0, size), "manifest.json"), ConfigError);
  }
}

}  // namespace
}  // namespace rackrail::trainer::manifest_test
