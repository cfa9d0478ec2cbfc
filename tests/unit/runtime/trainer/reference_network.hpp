// The same networks in plain loops and double precision, forward only: the independent truth that
// the models' outputs and gradients are held against.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/trainer/dataset.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer::test {

class ReferenceNetwork {
 public:
  /// `tensors` are those of the model; `parameters` later have their layout.
  ReferenceNetwork(ModelConfig config, ImageShape input, std::int64_t classes,
                   std::span<const ParameterTensor> tensors);

  /// Σ −log softmax(outputs)[label] over the samples.
  double loss(std::span<const double> parameters, const BatchView& batch) const;
  /// ∂loss/∂parameter by central differences.
  std::vector<double> gradient(std::span<const double> parameters, const BatchView& batch) const;

 private:
  std::vector<double> outputs(std::span<const double> parameters,
                              std::span<const float> image) const;
  std::span<const double> tensor(std::span<const double> parameters, const std::string& name) const;

  ModelConfig config_;
  ImageShape input_;
  std::int64_t classes_;
  std::span<const ParameterTensor> tensors_;
};

}  // namespace rackrail::trainer::test
