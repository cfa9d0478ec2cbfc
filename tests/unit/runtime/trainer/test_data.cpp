#include "tests/unit/runtime/trainer/test_data.hpp"

#include <fstream>
#include <sstream>

#include "base/random.hpp"
#include "runtime/trainer/profile.hpp"

namespace rackrail::trainer::test {

Dataset make_dataset(const ImageShape& image, std::int64_t classes, std::int64_t samples,
                     std::uint64_t seed) {
  Dataset dataset(image, classes);
  std::vector<float> features(static_cast<std::size_t>(image.features()));
  for (std::int64_t i = 0; i < samples; ++i) {
    const std::uint64_t key = random_bits(seed, static_cast<std::uint64_t>(i));
    const auto label = static_cast<std::int32_t>(key % static_cast<std::uint64_t>(classes));
    for (std::size_t f = 0; f < features.size(); ++f) {
      features[f] = 0.5F * random_unit_float(key, f);
    }
    features[static_cast<std::size_t>(label)] += 1.0F;
    dataset.append(features, label);
  }
  return dataset;
}

DataSplit make_split(const TrainingConfig& config, std::int64_t train, std::int64_t test) {
  const DataFormat& format = config.data.format;
  return {make_dataset(format.image, format.classes, train, 11),
          make_dataset(format.image, format.classes, test, 12)};
}

TrainingConfig small_config() {
  TrainingConfig config;
  config.name = "small";
  config.data.format = {{4, 4, 1}, 3, 1.0};
  config.model = {"mlp", {8, 6}, {}};
  config.steps = 40;
  config.local_batch = 8;
  config.base_learning_rate = 0.1;
  config.base_batch = 8;
  config.decay = Decay::kCosine;
  config.warmup_steps = 5;
  config.optimizer = {0.9, 1e-3, 2.0};
  config.seed = 5;
  config.evaluate_every = 0;
  config.checkpoint_every = 0;
  return config;
}

plan::Plan make_plan(const TrainingConfig& config, std::vector<std::int64_t> local_batch,
                     const std::vector<std::vector<std::uint32_t>>& buckets) {
  const auto model =
      make_model(config.model, config.data.format.image, config.data.format.classes, config.seed);
  const plan::Workload workload = workload_shape(config.name, *model);
  plan::Plan plan = single_rank_plan(workload, 1);
  plan.rank_names.clear();
  for (std::size_t r = 0; r < local_batch.size(); ++r) {
    plan.rank_names.push_back("rank " + std::to_string(r));
  }
  plan.batch.local_batch = std::move(local_batch);
  plan.buckets.clear();
  for (const std::vector<std::uint32_t>& tensors : buckets) {
    plan::Bucket bucket;
    bucket.tensors = tensors;
    for (const std::uint32_t tensor : tensors) {
      bucket.elements += workload.tensors.at(tensor).elements;
    }
    bucket.slice_elements = 1024;
    plan.buckets.push_back(std::move(bucket));
  }
  return plan;
}

plan::Plan make_plan(const TrainingConfig& config, std::vector<std::int64_t> local_batch) {
  std::vector<std::vector<std::uint32_t>> buckets;
  const std::size_t layers = config.model.hidden.size() + config.model.channels.size() + 1;
  for (std::uint32_t tensor = 0; tensor < 2 * layers; ++tensor) {
    buckets.push_back({tensor});
  }
  return make_plan(config, std::move(local_batch), buckets);
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

}  // namespace rackrail::trainer::test
