// The kinds of models: which layers, in which order.
#include <string>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/model.hpp"
#include "runtime/trainer/sequential.hpp"

namespace rackrail::trainer {
namespace {

using Layers = std::vector<LayerSpec>;
using Kind = LayerSpec::Kind;

void require_positive(const std::vector<std::int64_t>& sizes, const std::string& field) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) {
      throw ConfigError(ErrorContext{"", field + "[" + std::to_string(i) + "]",
                                     std::to_string(sizes[i]), "a positive integer"});
    }
  }
}

void append_fully_connected(Layers& layers, ImageShape shape,
                            const std::vector<std::int64_t>& hidden, std::int64_t classes) {
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    layers.push_back({Kind::kDense, "fc" + std::to_string(i + 1), shape, hidden[i]});
    shape = output_of(layers.back());
    layers.push_back({Kind::kRelu, "", shape});
  }
  layers.push_back({Kind::kDense, "fc" + std::to_string(hidden.size() + 1), shape, classes});
}

Layers multi_layer_perceptron(const ModelConfig& config, const ImageShape& input,
                              std::int64_t classes) {
  if (!config.channels.empty()) {
    throw ConfigError(ErrorContext{"", "model.channels", "channels of a multi-layer perceptron",
                                   "only model.hidden"});
  }
  Layers layers;
  append_fully_connected(layers, input, config.hidden, classes);
  return layers;
}

Layers convolutional(const ModelConfig& config, const ImageShape& input, std::int64_t classes) {
  if (config.channels.empty()) {
    throw ConfigError(
        ErrorContext{"", "model.channels", "nothing", "the outputs of each convolution"});
  }
  if (input.height % 2 != 0 || input.width % 2 != 0) {
    throw ConfigError(ErrorContext{
        "", "data.image", std::to_string(input.height) + " x " + std::to_string(input.width),
        "an even height and width, for 2x2 pooling"});
  }
  Layers layers;
  ImageShape shape = input;
  for (std::size_t i = 0; i < config.channels.size(); ++i) {
    layers.push_back(
        {Kind::kConvolution, "conv" + std::to_string(i + 1), shape, config.channels[i]});
    shape = output_of(layers.back());
    layers.push_back({Kind::kRelu, "", shape});
  }
  layers.push_back({Kind::kMaxPool, "", shape});
  append_fully_connected(layers, output_of(layers.back()), config.hidden, classes);
  return layers;
}

}  // namespace

std::string Model::parameters_digest() {
  std::vector<float> buffer;
  const std::span<const float> values = compute().on_host(parameters(), buffer);
  return sha256_hex({reinterpret_cast<const char*>(values.data()), values.size_bytes()});
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const ImageShape& input,
                                  std::int64_t classes, std::uint64_t seed,
                                  std::shared_ptr<Compute> compute) {
  require_positive(config.hidden, "model.hidden");
  require_positive(config.channels, "model.channels");
  if (config.kind == "mlp") {
    return std::make_unique<Sequential>(multi_layer_perceptron(config, input, classes), seed,
                                        std::move(compute));
  }
  if (config.kind == "cnn") {
    return std::make_unique<Sequential>(convolutional(config, input, classes), seed,
                                        std::move(compute));
  }
  throw ConfigError(ErrorContext{"", "model.kind", config.kind, "mlp or cnn"});
}

}  // namespace rackrail::trainer
