// Layers without parameters: rectification and pooling.
#include <algorithm>
#include <array>

#include "runtime/trainer/layer.hpp"

namespace rackrail::trainer {
namespace {

class Relu final : public Layer {
 public:
  explicit Relu(const ImageShape& shape) : shape_(shape) {}

  ImageShape output_shape() const override { return shape_; }
  std::int64_t activations_per_sample() const override { return shape_.features(); }

  std::span<const float> forward(std::int64_t /*samples*/, std::span<const float> input) override {
    output_.resize(input.size());
    // A comparison that lets not-a-number through, so that a diverged model shows it.
    std::ranges::transform(input, output_.begin(), [](float x) { return x < 0.0F ? 0.0F : x; });
    return output_;
  }

  void backward(std::int64_t /*samples*/, std::span<const float> /*input*/,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool /*accumulate*/, const TensorReady& /*ready*/) override {
    for (std::size_t i = 0; i < input_gradient.size(); ++i) {
      input_gradient[i] = output_[i] > 0.0F ? output_gradient[i] : 0.0F;
    }
  }

 private:
  ImageShape shape_;
  std::vector<float> output_;
};

class MaxPool final : public Layer {
 public:
  explicit MaxPool(const ImageShape& input) : input_(input) {}

  ImageShape output_shape() const override {
    return {input_.height / 2, input_.width / 2, input_.channels};
  }
  // The index of the winner takes as much room as a value.
  std::int64_t activations_per_sample() const override { return 2 * output_shape().features(); }

  std::span<const float> forward(std::int64_t samples, std::span<const float> input) override {
    output_.resize(static_cast<std::size_t>(samples * output_shape().features()));
    winner_.resize(output_.size());
    const std::int64_t row = input_.width * input_.channels;
    std::size_t out = 0;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      for (std::int64_t y = 0; y + 1 < input_.height; y += 2) {
        for (std::int64_t x = 0; x + 1 < input_.width; x += 2) {
          for (std::int64_t c = 0; c < input_.channels; ++c, ++out) {
            const std::int64_t corner =
                sample * input_.features() + y * row + x * input_.channels + c;
            const std::array window{corner, corner + input_.channels, corner + row,
                                    corner + row + input_.channels};
            const std::int64_t best = *std::ranges::max_element(
                window, {}, [&](std::int64_t i) { return input[static_cast<std::size_t>(i)]; });
            winner_[out] = static_cast<std::uint32_t>(best);
            output_[out] = input[static_cast<std::size_t>(best)];
          }
        }
      }
    }
    return output_;
  }

  void backward(std::int64_t /*samples*/, std::span<const float> /*input*/,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool /*accumulate*/, const TensorReady& /*ready*/) override {
    if (input_gradient.empty()) {
      return;
    }
    std::ranges::fill(input_gradient, 0.0F);
    for (std::size_t i = 0; i < output_gradient.size(); ++i) {
      input_gradient[winner_[i]] += output_gradient[i];
    }
  }

 private:
  ImageShape input_;
  std::vector<float> output_;
  std::vector<std::uint32_t> winner_;
};

}  // namespace

ImageShape output_of(const LayerSpec& spec) {
  const ImageShape& in = spec.input;
  switch (spec.kind) {
    case LayerSpec::Kind::kDense:
      return {1, 1, spec.outputs};
    case LayerSpec::Kind::kConvolution:
      return {in.height, in.width, spec.outputs};
    case LayerSpec::Kind::kRelu:
      return in;
    case LayerSpec::Kind::kMaxPool:
      break;
  }
  return {in.height / 2, in.width / 2, in.channels};
}

void Layer::bind(std::span<float> /*parameters*/, std::span<float> /*gradients*/) {}

std::unique_ptr<Layer> make_relu(const ImageShape& input) { return std::make_unique<Relu>(input); }

std::unique_ptr<Layer> make_max_pool(const ImageShape& input) {
  return std::make_unique<MaxPool>(input);
}

}  // namespace rackrail::trainer
