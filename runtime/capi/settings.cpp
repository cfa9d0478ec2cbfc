#include "runtime/capi/settings.hpp"

#include <cstddef>
#include <map>

#include "base/error.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/launch/session.hpp"

namespace rackrail::capi {
namespace {

constexpr Duration kTimeout = 300_s;
constexpr const char* kConfig = "rackrail_config";

[[noreturn]] void reject(std::string where, std::string found, std::string expected) {
  throw ConfigError(ErrorContext{.file = kConfig,
                                 .where = std::move(where),
                                 .found = std::move(found),
                                 .expected = std::move(expected)});
}

/// A text and who said it: for messages.
struct Said {
  std::string text;
  std::string file;
  std::string where;
};

Said text_of(const char* configured, const char* member, const char* variable,
             const runtime::EnvironmentMap& environment) {
  if (configured != nullptr) {
    return {configured, kConfig, member};
  }
  const auto it = environment.find(variable);
  return {it == environment.end() ? "" : it->second, "<environment>", variable};
}

CodecChoice read_codec(const Said& said) {
  if (said.text.empty() || said.text == "none") {
    return plan::Codec{};
  }
  if (said.text == "auto") {
    return std::nullopt;
  }
  try {
    return plan::parse_codec(said.text);
  } catch (const ConfigError& error) {
    ErrorContext context = error.context();
    context.file = said.file;
    context.where = said.where;
    context.expected += ", or auto";
    throw ConfigError(context);
  }
}

runtime::LaunchEnvironment launch_of(const rackrail_config& config,
                                     const runtime::EnvironmentMap& environment) {
  runtime::LaunchEnvironment alone;
  alone.coordinator = {"127.0.0.1", 0};
  if (config.world_size < 0) {
    reject("world_size", std::to_string(config.world_size), "a number of ranks; or 0");
  }
  if (config.world_size == 0) {
    auto launch = runtime::detect_launch(environment).value_or(alone);
    if (config.coordinator != nullptr) {
      launch.coordinator = runtime::parse_host_port(config.coordinator, "coordinator", kConfig);
    }
    return launch;
  }
  if (config.rank < 0 || config.rank >= config.world_size) {
    reject("rank", std::to_string(config.rank),
           "a number from 0 to " + std::to_string(config.world_size - 1));
  }
  runtime::LaunchEnvironment launch = alone;
  launch.rank = Rank(static_cast<std::size_t>(config.rank));
  launch.world_size = static_cast<std::size_t>(config.world_size);
  const Said coordinator =
      text_of(config.coordinator, "coordinator", "RACKRAIL_COORDINATOR", environment);
  if (!coordinator.text.empty()) {
    launch.coordinator =
        runtime::parse_host_port(coordinator.text, coordinator.where, coordinator.file);
  } else if (launch.world_size > 1) {
    reject("coordinator", "nothing", "host:port where rank 0 listens");
  }
  return launch;
}

[[noreturn]] void reject_variable(const char* name, const std::string& found,
                                  const char* expected) {
  throw ConfigError(
      ErrorContext{.file = "<environment>", .where = name, .found = found, .expected = expected});
}

std::optional<Settings::Gpu> read_gpu(const rackrail_config& config,
                                      const runtime::EnvironmentMap& environment) {
  const std::string device = text_of(nullptr, "", "RACKRAIL_DEVICE", environment).text;
  if (!device.empty() && device != "cpu" && device != "cuda") {
    reject_variable("RACKRAIL_DEVICE", device, "cpu or cuda");
  }
  if (config.device != RACKRAIL_HOST && config.device != RACKRAIL_CUDA) {
    reject("device", std::to_string(config.device), "RACKRAIL_HOST or RACKRAIL_CUDA");
  }
  if (config.device == RACKRAIL_HOST && device != "cuda") {
    return std::nullopt;
  }
  if (config.device_id < 0) {
    reject("device_id", std::to_string(config.device_id), "the number of a GPU, from 0 on");
  }
  using runtime::GpuPath;
  const std::map<std::string, GpuPath> paths{
      {"", GpuPath::kAuto},         {"auto", GpuPath::kAuto},     {"nccl", GpuPath::kNccl},
      {"staged", GpuPath::kStaged}, {"direct", GpuPath::kDirect}, {"hybrid", GpuPath::kHybrid}};
  const std::string path = text_of(nullptr, "", "RACKRAIL_GPU_PATH", environment).text;
  const auto found = paths.find(path);
  if (found == paths.end()) {
    reject_variable("RACKRAIL_GPU_PATH", path, "auto, nccl, direct, staged or hybrid");
  }
  const std::string shares = text_of(nullptr, "", "RACKRAIL_SHARE_GPU", environment).text;
  if (!shares.empty() && shares != "0" && shares != "1") {
    reject_variable("RACKRAIL_SHARE_GPU", shares, "0 or 1");
  }
  // Without a configuration nobody has said which GPU.
  const bool is_chosen = config.device == RACKRAIL_CUDA;
  return Settings::Gpu{.device = is_chosen ? std::optional(config.device_id) : std::nullopt,
                       .path = found->second,
                       .shares = shares == "1"};
}

}  // namespace

Settings read_settings(const rackrail_config* given, const runtime::EnvironmentMap& environment) {
  rackrail_config config = {};
  if (given != nullptr) {
    if (given->size != sizeof config) {
      reject("size", std::to_string(given->size),
             std::to_string(sizeof config) + ", as in this version's rackrail.h");
    }
    config = *given;
  }
  Settings settings;
  settings.launch = launch_of(config, environment);
  if (config.token != nullptr && config.token_file != nullptr) {
    reject("token", "token_file beside it", "one of them");
  }
  settings.token =
      config.token != nullptr
          ? runtime::checked_job_token(config.token, kConfig, "token")
          : runtime::read_job_token(config.token_file == nullptr ? "" : config.token_file);
  settings.is_network_private = config.is_network_private != 0;
  if (config.on_listening != nullptr) {
    settings.on_listening = [tell = config.on_listening, argument = config.on_listening_argument](
                                const std::string& addresses) {
      tell(addresses.c_str(), argument);
    };
  }
  settings.cluster = text_of(config.cluster, "cluster", "RACKRAIL_CLUSTER", environment).text;
  if (settings.cluster == "none") {
    settings.cluster.clear();
  }
  settings.calibration = text_of(nullptr, "", "RACKRAIL_CALIBRATION", environment).text;
  const Said codecs = text_of(config.codecs, "codecs", "RACKRAIL_CODECS", environment);
  settings.codec = read_codec(codecs);
  settings.plan = text_of(config.plan, "plan", "RACKRAIL_PLAN", environment).text;
  if (!settings.plan.empty() && !codecs.text.empty()) {
    throw ConfigError(ErrorContext{.file = codecs.file,
                                   .where = codecs.where,
                                   .found = "'" + codecs.text + "' beside a plan",
                                   .expected = "one of them: a plan has its codecs"});
  }
  settings.transport = config.transport != nullptr && *config.transport != '\0'
                           ? config.transport
                           : runtime::default_transport();
  settings.gpu = read_gpu(config, environment);
  if (config.timeout_milliseconds < 0) {
    reject("timeout_milliseconds", std::to_string(config.timeout_milliseconds), "a time; or 0");
  }
  settings.timeout =
      config.timeout_milliseconds == 0 ? kTimeout : 1_ms * config.timeout_milliseconds;
  return settings;
}

}  // namespace rackrail::capi
