// Small data sets, configurations and plans for the trainer's tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/plan.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/trainer/dataset.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer::test {

/// `samples` images of pseudo-random values whose class can be learnt: one bright pixel per class.
Dataset make_dataset(const ImageShape& image, std::int64_t classes, std::int64_t samples,
                     std::uint64_t seed);
DataSplit make_split(const TrainingConfig& config, std::int64_t train, std::int64_t test);

/// A small perceptron: 4×4 images, 3 classes, hidden layers of 8 and 6.
TrainingConfig small_config();

/// A small model of every shape.
struct ModelExample {
  const char* name;
  ModelConfig config;
  ImageShape image;
};
inline const std::vector<ModelExample>& model_examples() {
  static const std::vector<ModelExample> kAll{
      {"linear", {"mlp", {}, {}}, {1, 6, 1}},
      {"mlp", {"mlp", {5, 4}, {}}, {1, 6, 1}},
      {"cnn, one convolution", {"cnn", {}, {3}}, {2, 4, 1}},
      {"cnn", {"cnn", {5}, {3, 4}}, {4, 6, 2}},
  };
  return kAll;
}

/// A plan for `local_batch.size()` ranks of the configuration's model, with the given tensors in
/// each bucket and a schedule without transfers (for exchanges that need none).
plan::Plan make_plan(const TrainingConfig& config, std::vector<std::int64_t> local_batch,
                     const std::vector<std::vector<std::uint32_t>>& buckets);
/// The same with a bucket per tensor.
plan::Plan make_plan(const TrainingConfig& config, std::vector<std::int64_t> local_batch);

void write_text(const std::filesystem::path& path, const std::string& text);
std::string read_text(const std::filesystem::path& path);

/// The context of the Error that `action` throws; fails the test when it throws none.
template <typename Expected, typename Action>
ErrorContext context_of(const Action& action) {
  try {
    action();
  } catch (const Expected& error) {
    return error.context();
  }
  throw std::logic_error("no error was thrown");
}

}  // namespace rackrail::trainer::test
