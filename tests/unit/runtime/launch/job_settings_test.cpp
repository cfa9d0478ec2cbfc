#include "runtime/launch/job_settings.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/unit/runtime/launch/test_job.hpp"

namespace rackrail::runtime::job_settings_test {
namespace {

JobSettings full_settings() {
  JobSettings settings;
  settings.training = test::training_text(10, 5);
  settings.training_file = "/folder/training.yaml";
  settings.steps = 20;
  settings.seed = 18'446'744'073'709'551'615ULL;
  settings.checkpoint_folder = "/checkpoints";
  settings.restore = "/checkpoints/step-00000005";
  settings.timeline_step = 3;
  settings.outlives_coordinator = true;
  settings.survives_losses = true;
  settings.measures_steps = true;
  settings.samples = 123'456;
  settings.gpu = GpuSettings{
      .shares = true, .path = GpuPath::kHybrid, .hosts = {{Rank(0), Rank(2)}, {Rank(1)}}};
  settings.synchrony = {.local_steps = 4, .staleness = 2};
  return settings;
}

}  // namespace

TEST_CASE("job settings come back from JSON as they were") {
  const JobSettings back = parse_job_settings(to_json(full_settings()));
  CHECK(to_json(back) == to_json(full_settings()));
  CHECK(back.seed == full_settings().seed);
  CHECK(back.restore == full_settings().restore);
  const JobSettings plain = parse_job_settings(to_json(JobSettings{}));
  CHECK_FALSE(plain.steps.has_value());
  CHECK_FALSE(plain.timeline_step.has_value());
  CHECK(back.synchrony.local_steps == 4);
  CHECK(back.synchrony.staleness == 2);
  CHECK(plain.synchrony.is_synchronous());
  CHECK(back.survives_losses);
  CHECK(back.measures_steps);
  CHECK(back.samples == 123'456);
  CHECK_FALSE(plain.samples);
  CHECK(back.outlives_coordinator);
  REQUIRE(back.gpu);
  CHECK(back.gpu->shares);
  CHECK(back.gpu->path == GpuPath::kHybrid);
  CHECK(back.gpu->hosts == full_settings().gpu->hosts);
  CHECK_FALSE(plain.gpu);
  CHECK_FALSE(plain.survives_losses);
  CHECK_FALSE(plain.measures_steps);
  CHECK_FALSE(plain.outlives_coordinator);
}

TEST_CASE("a way between GPUs that is none is refused, not cast") {
  std::string text = to_json(full_settings());
  const std::string valid = R"("path":3)";
  REQUIRE(text.find(valid) != std::string::npos);
  for (const char* path : {R"("path":5)", R"("path":-1)", R"("path":260)"}) {
    std::string damaged = text;
    damaged.replace(damaged.find(valid), valid.size(), path);
    CHECK_THROWS_WITH(parse_job_settings(damaged), Catch::Contains("is no way between GPUs"));
  }
}

TEST_CASE("steps and seed of the job overrule those of the file") {
  JobSettings settings = full_settings();
  CHECK(training_config(settings).steps == 20);
  CHECK(training_config(settings).seed == settings.seed);
  settings.steps.reset();
  settings.seed.reset();
  CHECK(training_config(settings).steps == 10);
  CHECK(training_config(settings).seed == 1);
  settings.steps = 0;
  CHECK_THROWS_AS(training_config(settings), ConfigError);
}

TEST_CASE("settings that are none are refused") {
  for (const char* text : {"", "{}", "[]", R"({"training": 1})"}) {
    CHECK_THROWS_AS(parse_job_settings(text), RuntimeFailure);
  }
}

}  // namespace rackrail::runtime::job_settings_test
