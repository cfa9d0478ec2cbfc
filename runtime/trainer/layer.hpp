// The building blocks of models: each computes its output forward and its gradients backward, in
// the memory of one Compute (compute.hpp): the spans of its passes are of that.
//
// Activations are row-major [sample][height][width][channel], so a convolution over a whole batch
// is one matrix product and its result needs no reordering. A layer owns its output and whatever it
// keeps for backward; parameters and gradients live in the model's arenas and are bound once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/trainer/dataset.hpp"

namespace rackrail::trainer {

struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t fan_in = 0;  ///< inputs of one output; 0 for a tensor that starts as zeros
};

/// What a layer is, wherever it computes.
struct LayerSpec {
  enum class Kind : std::uint8_t {
    kDense,        ///< fully connected: y = x·W + b with W [inputs][outputs]
    kConvolution,  ///< 3×3, stride 1, zero padding of 1: the image keeps its size
    kRelu,
    kMaxPool,  ///< 2×2 with stride 2; height and width must be even. The first of equals wins.
  };
  Kind kind = Kind::kDense;
  std::string name;  ///< of layers with parameters
  ImageShape input;
  std::int64_t outputs = 0;  ///< features of a dense layer, channels of a convolution
};
/// What the layer's output is like.
ImageShape output_of(const LayerSpec& spec);

/// Called with the index of a tensor within the layer.
using TensorReady = std::function<void(std::size_t)>;

class Layer {
 public:
  virtual ~Layer() = default;
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  virtual ImageShape output_shape() const = 0;
  /// In the order in which backward finishes their gradients.
  virtual std::vector<TensorSpec> tensors() const { return {}; }
  /// FP32 values kept per sample between forward and backward, output included.
  virtual std::int64_t activations_per_sample() const = 0;
  /// Where the layer's tensors are, one after another. Called once, before any pass.
  virtual void bind(std::span<float> parameters, std::span<float> gradients);

  /// Returns the output: samples × output_shape().features(), valid until the next call.
  virtual std::span<const float> forward(std::int64_t samples, std::span<const float> input) = 0;
  /// After forward with the same input. `input_gradient` may be empty when nobody needs it.
  virtual void backward(std::int64_t samples, std::span<const float> input,
                        std::span<const float> output_gradient, std::span<float> input_gradient,
                        bool accumulate, const TensorReady& ready) = 0;
};

/// A dense layer's tensors, and a convolution's: its bias is a sum over rows and done at once, so
/// it comes first.
std::vector<TensorSpec> dense_tensors(const std::string& name, std::int64_t inputs,
                                      std::int64_t outputs);
std::vector<TensorSpec> convolution_tensors(const std::string& name, std::int64_t input_channels,
                                            std::int64_t output_channels);

// On the host.
std::unique_ptr<Layer> make_dense(const std::string& name, std::int64_t inputs,
                                  std::int64_t outputs);
std::unique_ptr<Layer> make_convolution(const std::string& name, const ImageShape& input,
                                        std::int64_t output_channels);
std::unique_ptr<Layer> make_relu(const ImageShape& input);
std::unique_ptr<Layer> make_max_pool(const ImageShape& input);

}  // namespace rackrail::trainer
