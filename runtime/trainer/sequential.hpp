// A model that is a chain of layers with a softmax at the end.
#pragma once

#include <memory>
#include <vector>

#include "runtime/trainer/layer.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer {

class Sequential final : public Model {
 public:
  /// Layers in forward order; each must accept the output of the one before it, and the first have
  /// parameters. Weights start uniform in ±√(6 / fan_in) (He et al., "Delving deep into
  /// rectifiers", ICCV 2015): unlike a normal distribution this needs only exactly rounded
  /// operations, so every machine gets the same bits.
  Sequential(std::vector<std::unique_ptr<Layer>> layers, std::uint64_t seed);

  std::span<const ParameterTensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return parameters_; }
  std::span<float> gradients() override { return gradients_; }
  double forward_backward(const BatchView& batch, double sample_weight, bool accumulate,
                          const PassHooks& hooks) override;
  Evaluation evaluate(const BatchView& samples) override;
  std::int64_t activations_per_sample() const override;

 private:
  /// The outputs of all layers, of the last one at the end.
  void forward(const BatchView& batch);
  void initialise(std::uint64_t seed);

  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::size_t> first_tensor_;  // by layer
  std::vector<ParameterTensor> tensors_;
  std::vector<std::int64_t> fan_in_;  // by tensor
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<std::span<const float>> outputs_;  // by layer, of the latest forward pass
  std::vector<float> output_gradient_;
  std::vector<float> input_gradient_;
};

}  // namespace rackrail::trainer
