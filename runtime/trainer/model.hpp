// A neural network as the trainer sees it: tensors in one arena, gradients that become ready one
// after another.
//
// All parameters lie in one contiguous FP32 arena, all gradients in another of the same layout, in
// the memory of the Compute that the model was made for.
// Tensors are laid out in the order in which backward finishes their gradients (last layer first),
// so that a bucket of neighbouring tensors is a contiguous span that can be sent where it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/dataset.hpp"

namespace rackrail::trainer {

struct ParameterTensor {
  std::string name;                 ///< "fc1.weight": stable, unique in the model
  std::vector<std::int64_t> shape;  ///< row-major
  std::int64_t offset = 0;          ///< first element in the arena
  std::int64_t elements = 0;
};

/// Called on the computing thread. Empty functions are not called.
struct PassHooks {
  std::function<void()> forward_done;
  /// The gradient of tensor `index` is final for what the model's Compute is given from now on;
  /// indices come in ascending order.
  std::function<void(std::size_t index)> gradient_ready;
};

struct Evaluation {
  std::int64_t samples = 0;
  double loss = 0;      ///< mean over the samples
  double accuracy = 0;  ///< share of samples whose largest output is their class
};

/// Used by one thread at a time; never starts threads of its own.
class Model {
 public:
  virtual ~Model() = default;
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  virtual Compute& compute() = 0;
  virtual std::span<const ParameterTensor> tensors() const = 0;
  virtual std::span<float> parameters() = 0;
  virtual std::span<float> gradients() = 0;

  /// One pass forward and backward. Leaves (or with `accumulate` adds) the gradient of
  /// sample_weight · Σ loss over the batch's samples, and returns Σ loss without the weight. With
  /// sample_weight = 1/B the sum of all ranks' gradients is the gradient of the mean over the
  /// global batch of B samples, however it is divided. Backward is over after Compute::wait().
  virtual double forward_backward(const BatchView& batch, double sample_weight, bool accumulate,
                                  const PassHooks& hooks) = 0;
  /// Forward only, in portions of bounded memory. `samples` must not be empty.
  virtual Evaluation evaluate(const BatchView& samples) = 0;

  /// FP32 values that forward keeps per sample for backward.
  virtual std::int64_t activations_per_sample() const = 0;

  /// SHA-256 of the parameters' bits: equal on all ranks after every step.
  std::string parameters_digest();
};

struct ModelConfig {
  std::string kind;                    ///< "mlp" or "cnn"
  std::vector<std::int64_t> hidden;    ///< widths of the hidden fully connected layers
  std::vector<std::int64_t> channels;  ///< cnn: outputs of each 3×3 convolution
};

/// Builds and initialises; the parameters depend on `seed` and the shapes alone, bit for bit and on
/// every machine. It computes on the host, or where `compute` says. Throws ConfigError (field,
/// found, expected) for an impossible configuration.
///   mlp: hidden layers with ReLU, then a linear layer onto the classes.
///   cnn: 3×3 convolutions with ReLU, 2×2 max-pooling, then like mlp.
/// To add a kind: a function in models.cpp that lists its layers.
std::unique_ptr<Model> make_model(const ModelConfig& config, const ImageShape& input,
                                  std::int64_t classes, std::uint64_t seed,
                                  std::shared_ptr<Compute> compute = make_host_compute());

}  // namespace rackrail::trainer
