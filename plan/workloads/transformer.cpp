#include "plan/workloads/transformer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/workloads/formats.hpp"
#include "plan/workloads/model_builder.hpp"

namespace rackrail::plan {
namespace {

constexpr std::int64_t kMostParameters = std::int64_t{1} << 50U;

}  // namespace

void ModelBuilder::add(ModelPart part) {
  // Sides are products of what the file says, so their own product need not be a number.
  if (part.columns > 0 && part.rows > kLargestTensor / part.columns) {
    config_.fail(part.name, fmt::format("a tensor of {} x {}", part.rows, part.columns),
                 fmt::format("at most {} parameters", kLargestTensor));
  }
  const std::int64_t elements = part.elements();
  parameters_ += part.has_gradient() ? elements : 0;
  if (elements > kLargestTensor || parameters_ > kMostParameters ||
      model.parts.size() >= kMostTensors) {
    config_.fail(part.name, fmt::format("tensor {} of {} parameters", model.parts.size(), elements),
                 fmt::format("fewer than {} tensors, of at most {} parameters each", kMostTensors,
                             kLargestTensor));
  }
  model.parts.push_back(std::move(part));
}

void ModelBuilder::linear(const std::string& name, std::int64_t rows, std::int64_t columns,
                          bool bias, double uses) {
  add({.name = name + ".weight", .rows = rows, .columns = columns, .uses = uses});
  if (bias) {
    vector(name + ".bias", rows);
  }
}

void ModelBuilder::embedding(const std::string& name, std::int64_t rows, std::int64_t columns) {
  add({.name = name + ".weight", .rows = rows, .columns = columns});
}

void ModelBuilder::vector(const std::string& name, std::int64_t elements) {
  add({.name = name, .rows = elements});
}

void ModelBuilder::norm(const std::string& name, std::int64_t width, bool bias) {
  vector(name + ".weight", width);
  if (bias) {
    vector(name + ".bias", width);
  }
}

void ModelBuilder::scores(std::int64_t heads, std::int64_t key_dimension,
                          std::int64_t value_dimension) {
  add({.score_width = heads * (key_dimension + value_dimension)});
}

void ModelBuilder::output(const std::string& name, std::int64_t vocabulary, std::int64_t width,
                          bool is_shared, bool bias) {
  add({.name = name + ".weight",
       .rows = vocabulary,
       .columns = width,
       .uses = 1,
       .is_shared = is_shared});
  if (bias) {
    vector(name + ".bias", vocabulary);
  }
}

void ModelBuilder::keep_dropouts(std::int64_t width) {
  if (config_.number_or({"resid_pdrop", "hidden_dropout_prob", "hidden_dropout", "resid_dropout",
                         "residual_dropout", "dropout"},
                        0) > 0) {
    keep_masks(static_cast<double>(2 * width));
  }
}

std::vector<std::string> known_transformers() {
  std::vector<std::string> types = decoder_types();
  std::ranges::copy(encoder_types(), std::back_inserter(types));
  std::ranges::sort(types);
  return types;
}

Transformer read_transformer(const std::string& file, const std::string& content) {
  const ModelConfig config(file, content);
  const std::string type = config.text_or("model_type", "");
  ModelBuilder builder(config);
  builder.model.type = type;
  if (!build_decoder(type, builder) && !build_encoder(type, builder)) {
    if (config.has("text_config")) {
      config.fail("model_type", fmt::format("'{}', a model of several parts", type),
                  "a config.json of the part that is trained, as its text_config");
    }
    config.fail("model_type", type.empty() ? "nothing" : fmt::format("'{}'", type),
                fmt::format("one of {}", fmt::join(known_transformers(), ", ")));
  }
  return std::move(builder.model);
}

}  // namespace rackrail::plan
