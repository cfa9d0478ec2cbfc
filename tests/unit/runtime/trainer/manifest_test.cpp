#include "runtime/trainer/manifest.hpp"

#include <catch2/catch.hpp>

#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer {
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
}

TEST_CASE("A manifest comes back as it was") {
  const CheckpointManifest manifest{example_info(), {{"model.safetensors", 12, "dd"}}};
  const CheckpointManifest back = parse_manifest(to_json(manifest), "manifest.json");
  check_equal(back.info, manifest.info);
  REQUIRE(back.files.size() == 1);
  CHECK(back.files[0].name == "model.safetensors");
  CHECK(back.files[0].bytes == 12);
  CHECK(back.files[0].sha256 == "dd");
}

TEST_CASE("Metadata come back as they were, and miss nothing") {
  const Metadata metadata = to_metadata(example_info());
  check_equal(parse_metadata(metadata, "x"), example_info());
  for (const auto& [key, value] : metadata) {
    if (key == "format") {
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
}

TEST_CASE("A manifest that is no such thing is refused by field") {
  const std::string good = to_json({example_info(), {{"model.safetensors", 12, "dd"}}});
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
  CHECK(refused("model.safetensors", "../model") == "files[0].name");
  CHECK(refused("\"bytes\": 12", "\"bytes\": \"12\"") == "files[0].bytes");
  for (std::size_t size = 0; size + 2 < good.size(); ++size) {
    REQUIRE_THROWS_AS(parse_manifest(good.substr(0, size), "manifest.json"), ConfigError);
  }
}

}  // namespace
}  // namespace rackrail::trainer
