// What to train and how: configs/training/*.yaml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/trainer/dataset.hpp"
#include "runtime/trainer/learning_rate.hpp"
#include "runtime/trainer/model.hpp"
#include "runtime/trainer/optimizer.hpp"

namespace rackrail::trainer {

struct DataConfig {
  std::filesystem::path file;  ///< as given, or relative to the folder of the YAML file
  DataFormat format;
  double test_share = 0.2;
  std::int64_t max_shift = 0;  ///< training images are moved by up to this many pixels
};

struct TrainingConfig {
  std::string name;
  DataConfig data;
  ModelConfig model;

  /// Exactly one of the two is given.
  std::optional<std::int64_t> steps;
  std::optional<double> epochs;

  std::int64_t local_batch = 32;    ///< samples per rank and pass, where the plan does not say
  double base_learning_rate = 0.1;  ///< at `base_batch`
  std::int64_t base_batch = 128;
  Decay decay = Decay::kCosine;
  std::int64_t warmup_steps = 0;  ///< where the plan does not say
  SgdOptions optimizer;

  std::uint64_t seed = 1;
  std::int64_t evaluate_every = 50;     ///< steps; 0: only at the end
  std::int64_t checkpoint_every = 100;  ///< steps; 0: never

  /// Steps of the whole run.
  std::int64_t total_steps(std::int64_t training_samples, std::int64_t global_batch) const;
  /// SHA-256 of everything that decides how training goes: model, data format, optimiser, seed, and
  /// the length where the learning rate depends on it; not how often is evaluated or saved. A
  /// checkpoint belongs to one of these.
  std::string digest() const;
};

/// A file, or the name of a shipped one (`configs`/training/<name>.yaml). Throws ConfigError with
/// file, line, found and expected; unknown keys are errors.
TrainingConfig read_training_config(const std::string& name_or_path,
                                    const std::filesystem::path& configs);
/// `file` is for messages and for relative paths.
TrainingConfig parse_training_config(const std::string& content, const std::filesystem::path& file);
std::vector<std::string> shipped_training_configs(const std::filesystem::path& configs);

/// The data set of a configuration in its two parts. The split does not depend on the seed, so that
/// runs with different seeds are judged by the same test.
DataSplit load_data(const DataConfig& config);

}  // namespace rackrail::trainer
