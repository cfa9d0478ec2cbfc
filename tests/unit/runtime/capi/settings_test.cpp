#include "runtime/capi/settings.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "runtime/coordinator/local_socket.hpp"

namespace rackrail::capi::settings_test {
namespace {

rackrail_config empty_config() {
  rackrail_config config = {};
  config.size = sizeof config;
  return config;
}

std::string refusal(const rackrail_config* config, const runtime::EnvironmentMap& environment) {
  try {
    (void)read_settings(config, environment);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

const runtime::EnvironmentMap kTorchrun = {{"RANK", "1"},
                                           {"WORLD_SIZE", "4"},
                                           {"LOCAL_RANK", "1"},
                                           {"MASTER_ADDR", "node-7"},
                                           {"MASTER_PORT", "29500"}};

runtime::EnvironmentMap with(runtime::EnvironmentMap map, const std::string& name,
                             const std::string& value) {
  map[name] = value;
  return map;
}

}  // namespace

TEST_CASE("Sums are made on a GPU where the configuration or the environment says so") {
  rackrail_config config = empty_config();
  CHECK_FALSE(read_settings(&config, {}).gpu);
  CHECK_FALSE(read_settings(&config, {{"RACKRAIL_DEVICE", "cpu"}}).gpu);
  REQUIRE(read_settings(&config, {{"RACKRAIL_DEVICE", "cuda"}}).gpu);
  CHECK_FALSE(read_settings(&config, {{"RACKRAIL_DEVICE", "cuda"}}).gpu->device);
  config.device = RACKRAIL_CUDA;
  config.device_id = 3;
  const Settings settings = read_settings(&config, {{"RACKRAIL_GPU_PATH", "hybrid"}});
  REQUIRE(settings.gpu);
  CHECK(settings.gpu->device == 3);
  CHECK(settings.gpu->path == runtime::GpuPath::kHybrid);
  CHECK_FALSE(settings.gpu->shares);
  CHECK(read_settings(&config, {{"RACKRAIL_SHARE_GPU", "1"}}).gpu->shares);
  CHECK_FALSE(read_settings(&config, {{"RACKRAIL_SHARE_GPU", "0"}}).gpu->shares);
  CHECK_THAT(refusal(&config, {{"RACKRAIL_SHARE_GPU", "yes"}}), Catch::Contains("0 or 1"));
  CHECK_THAT(refusal(&config, {{"RACKRAIL_GPU_PATH", "fast"}}), Catch::Contains("auto, nccl"));
  CHECK_THAT(refusal(&config, {{"RACKRAIL_DEVICE", "gpu"}}), Catch::Contains("cpu or cuda"));
  config.device_id = -1;
  CHECK_THAT(refusal(&config, {}), Catch::Contains("device_id"));
  config.device = 7;
  CHECK_THAT(refusal(&config, {}), Catch::Contains("RACKRAIL_HOST or RACKRAIL_CUDA"));
}

TEST_CASE("without a launcher and a configuration the job is this process") {
  const Settings settings = read_settings(nullptr, {});
  CHECK(settings.launch.world_size == 1);
  CHECK(settings.launch.rank == Rank(std::size_t{0}));
  CHECK(settings.cluster.empty());
  CHECK(settings.codec == plan::Codec{});
  CHECK(settings.timeout == 300_s);
}

TEST_CASE("ranks of torchrun on one machine meet at a socket of this user, others at the master") {
  CHECK(read_settings(nullptr, kTorchrun).launch.coordinator == runtime::HostPort{"node-7", 29501});
  CHECK(read_settings(nullptr, with(kTorchrun, "LOCAL_WORLD_SIZE", "2")).launch.coordinator ==
        runtime::HostPort{"node-7", 29501});
  const auto here = with(kTorchrun, "LOCAL_WORLD_SIZE", "4");
  CHECK(is_local_meeting(read_settings(nullptr, here).launch.coordinator));
  CHECK(read_settings(nullptr, with(here, "MASTER_PORT", "29600")).launch.coordinator.host !=
        read_settings(nullptr, here).launch.coordinator.host);
  // What was said explicitly is not changed.
  const auto named = with(with(kTorchrun, "LOCAL_WORLD_SIZE", "4"), "RACKRAIL_COORDINATOR", "h:7");
  CHECK(read_settings(nullptr, named).launch.coordinator == runtime::HostPort{"h", 7});
  rackrail_config config = empty_config();
  config.coordinator = "other:8";
  CHECK(read_settings(&config, named).launch.coordinator == runtime::HostPort{"other", 8});
}

TEST_CASE("a configuration overrules the environment") {
  const runtime::EnvironmentMap environment = {
      {"RACKRAIL_CLUSTER", "a"}, {"RACKRAIL_CODECS", "fp16"}, {"RACKRAIL_COORDINATOR", "h:1"}};
  Settings settings = read_settings(nullptr, environment);
  CHECK(settings.cluster == "a");
  CHECK(settings.codec == plan::Codec{.kind = plan::CodecKind::kFp16});
  rackrail_config config = empty_config();
  config.cluster = "none";
  config.codecs = "auto";
  config.world_size = 3;
  config.rank = 2;
  config.timeout_milliseconds = 1500;
  settings = read_settings(&config, environment);
  CHECK(settings.cluster.empty());
  CHECK_FALSE(settings.codec.has_value());
  CHECK(settings.launch.world_size == 3);
  CHECK(settings.launch.rank == Rank(std::size_t{2}));
  CHECK(settings.launch.coordinator == runtime::HostPort{"h", 1});
  CHECK(settings.timeout == 1500_ms);
}

TEST_CASE("what cannot be a job is refused with the place") {
  rackrail_config config = empty_config();
  config.world_size = 2;
  CHECK_THAT(refusal(&config, {}),
             Catch::Contains("rackrail_config") && Catch::Contains("coordinator: found nothing"));
  config.coordinator = "h:1";
  config.rank = 2;
  CHECK_THAT(refusal(&config, {}), Catch::Contains("rank: found 2, expected a number from 0 to 1"));
  config.rank = -1;
  CHECK_THAT(refusal(&config, {}), Catch::Contains("rank: found -1"));
  config = empty_config();
  config.size = 8;
  CHECK_THAT(refusal(&config, {}), Catch::Contains("size: found 8"));
  config = empty_config();
  config.timeout_milliseconds = -5;
  CHECK_THAT(refusal(&config, {}), Catch::Contains("timeout_milliseconds: found -5"));
  config = empty_config();
  config.codecs = "gzip";
  CHECK_THAT(refusal(&config, {}), Catch::Contains("rackrail_config: codecs") &&
                                       Catch::Contains("gzip") && Catch::Contains("or auto"));
  CHECK_THAT(refusal(nullptr, {{"RACKRAIL_CODECS", "gzip"}}),
             Catch::Contains("<environment>: RACKRAIL_CODECS"));
  CHECK_THAT(refusal(nullptr, {{"RANK", "4"}, {"WORLD_SIZE", "4"}}), Catch::Contains("RANK"));
}

TEST_CASE("a plan's file comes from the configuration or the environment, without codecs") {
  CHECK(read_settings(nullptr, {}).plan.empty());
  CHECK(read_settings(nullptr, {{"RACKRAIL_PLAN", "a.json"}}).plan == "a.json");
  rackrail_config config = empty_config();
  config.plan = "b.json";
  CHECK(read_settings(&config, {{"RACKRAIL_PLAN", "a.json"}}).plan == "b.json");
  CHECK_THAT(refusal(&config, {{"RACKRAIL_CODECS", "int8"}}),
             Catch::Contains("RACKRAIL_CODECS: found 'int8' beside a plan"));
}

}  // namespace rackrail::capi::settings_test
