#include "runtime/launch/job_settings.hpp"

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

template <typename T>
std::optional<T> optional_field(const nlohmann::json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() ? std::nullopt : std::optional<T>(it->get<T>());
}

nlohmann::json gpu_json(const GpuSettings& gpu) {
  nlohmann::json hosts = nlohmann::json::array();
  for (const std::vector<Rank>& host : gpu.hosts) {
    auto& ranks = hosts.emplace_back(nlohmann::json::array());
    for (const Rank rank : host) {
      ranks.push_back(rank.value());
    }
  }
  return {{"shares", gpu.shares}, {"path", static_cast<int>(gpu.path)}, {"hosts", hosts}};
}

GpuSettings parse_gpu(const nlohmann::json& object) {
  GpuSettings gpu;
  gpu.shares = object.at("shares").get<bool>();
  const int path = object.at("path").get<int>();
  if (path < 0 || path > static_cast<int>(GpuPath::kDirect)) {
    throw RuntimeFailure("the coordinator's job options cannot be read: " + std::to_string(path) +
                         " is no way between GPUs");
  }
  gpu.path = static_cast<GpuPath>(path);
  for (const auto& host : object.at("hosts")) {
    auto& ranks = gpu.hosts.emplace_back();
    for (const auto& rank : host) {
      ranks.emplace_back(rank.get<std::uint32_t>());
    }
  }
  return gpu;
}

}  // namespace

std::string to_json(const JobSettings& settings) {
  nlohmann::json object = {{"training", settings.training},
                           {"training_file", settings.training_file.string()},
                           {"checkpoint_folder", settings.checkpoint_folder.string()},
                           {"restore", settings.restore.string()},
                           {"outlives_coordinator", settings.outlives_coordinator},
                           {"survives_losses", settings.survives_losses},
                           {"measures_steps", settings.measures_steps}};
  if (settings.steps) {
    object["steps"] = *settings.steps;
  }
  if (settings.seed) {
    object["seed"] = *settings.seed;
  }
  if (settings.samples) {
    object["samples"] = *settings.samples;
  }
  if (settings.timeline_step) {
    object["timeline_step"] = *settings.timeline_step;
  }
  if (settings.gpu) {
    object["gpu"] = gpu_json(*settings.gpu);
  }
  if (settings.synchrony.local_steps) {
    object["local_steps"] = *settings.synchrony.local_steps;
  }
  if (settings.synchrony.staleness) {
    object["staleness"] = *settings.synchrony.staleness;
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

JobSettings parse_job_settings(const std::string& text) {
  try {
    const nlohmann::json object = nlohmann::json::parse(text);
    JobSettings settings;
    settings.training = object.at("training").get<std::string>();
    settings.training_file = object.at("training_file").get<std::string>();
    settings.checkpoint_folder = object.at("checkpoint_folder").get<std::string>();
    settings.restore = object.at("restore").get<std::string>();
    settings.outlives_coordinator = object.at("outlives_coordinator").get<bool>();
    settings.survives_losses = object.at("survives_losses").get<bool>();
    settings.measures_steps = object.at("measures_steps").get<bool>();
    settings.steps = optional_field<std::int64_t>(object, "steps");
    settings.seed = optional_field<std::uint64_t>(object, "seed");
    settings.samples = optional_field<std::int64_t>(object, "samples");
    settings.timeline_step = optional_field<std::uint32_t>(object, "timeline_step");
    if (object.contains("gpu")) {
      settings.gpu = parse_gpu(object.at("gpu"));
    }
    settings.synchrony.local_steps = optional_field<std::int64_t>(object, "local_steps");
    settings.synchrony.staleness = optional_field<std::int64_t>(object, "staleness");
    return settings;
  } catch (const nlohmann::json::exception& error) {
    throw RuntimeFailure(std::string("the coordinator's job options cannot be read: ") +
                         error.what());
  }
}

trainer::TrainingConfig training_config(const JobSettings& settings) {
  trainer::TrainingConfig config =
      trainer::parse_training_config(settings.training, settings.training_file);
  if (settings.steps) {
    if (*settings.steps <= 0) {
      throw ConfigError(ErrorContext{.file = "<command line>",
                                     .where = "steps",
                                     .found = std::to_string(*settings.steps),
                                     .expected = "a positive number"});
    }
    config.steps = settings.steps;
    config.epochs.reset();
  }
  if (settings.seed) {
    config.seed = *settings.seed;
  }
  return config;
}

}  // namespace rackrail::runtime
