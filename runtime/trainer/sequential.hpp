// A model that is a chain of layers with a softmax at the end.
#pragma once

#include <memory>
#include <vector>

#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/layer.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer {

class Sequential final : public Model {
 public:
  /// Layers in forward order. Each must accept the output of the one before it, and the first must
  /// have parameters. Weights start uniform in ±√(6 / fan_in) (He et al., "Delving deep into
  /// rectifiers", ICCV 2015). In contrast to a normal distribution this needs only exactly rounded
  /// operations, so every machine gets the same bits.
  Sequential(const std::vector<LayerSpec>& layers, std::uint64_t seed,
             std::shared_ptr<Compute> compute);

  Compute& compute() override { return *compute_; }
  std::span<const ParameterTensor> tensors() const override { return tensors_; }
  std::span<float> parameters() override { return parameters_.span(); }
  std::span<float> gradients() override { return gradients_.span(); }
  double forward_backward(const BatchView& batch, double sample_weight, bool accumulate,
                          const PassHooks& hooks) override;
  Evaluation evaluate(const BatchView& samples) override;
  std::int64_t activations_per_sample() const override;

 private:
  /// The outputs of all layers, of the last one at the end.
  void forward(const BatchView& batch);
  void initialise(std::uint64_t seed);

  const std::shared_ptr<Compute> compute_;  // outlives what is in its memory
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::size_t> first_tensor_;  // by layer
  std::vector<ParameterTensor> tensors_;
  std::vector<std::int64_t> fan_in_;  // by tensor
  Floats parameters_;
  Floats gradients_;
  std::span<const float> features_;              // of the latest forward pass
  std::vector<std::span<const float>> outputs_;  // by layer, of the latest forward pass
  Floats output_gradient_;
  Floats input_gradient_;
};

}  // namespace rackrail::trainer
