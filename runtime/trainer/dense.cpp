// Fully connected: y = x·W + b with W [inputs][outputs].
#include <Eigen/Core>

#include "runtime/trainer/layer.hpp"
#include "runtime/trainer/matrix.hpp"

namespace rackrail::trainer {
namespace {

class Dense final : public Layer {
 public:
  Dense(const std::string& name, std::int64_t inputs, std::int64_t outputs)
      : name_(name), inputs_(inputs), outputs_(outputs) {}

  ImageShape output_shape() const override { return {1, 1, outputs_}; }
  std::int64_t activations_per_sample() const override { return outputs_; }
  std::vector<TensorSpec> tensors() const override {
    return dense_tensors(name_, inputs_, outputs_);
  }

  void bind(std::span<float> parameters, std::span<float> gradients) override {
    const auto bias = static_cast<std::size_t>(outputs_);
    bias_ = parameters.first(bias);
    weight_ = parameters.subspan(bias);
    bias_gradient_ = gradients.first(bias);
    weight_gradient_ = gradients.subspan(bias);
  }

  std::span<const float> forward(std::int64_t samples, std::span<const float> input) override {
    output_.resize(static_cast<std::size_t>(samples * outputs_));
    auto y = matrix(std::span(output_), samples, outputs_);
    y.noalias() = matrix(input, samples, inputs_) *
                  matrix(std::span<const float>(weight_), inputs_, outputs_);
    y.rowwise() += matrix(std::span<const float>(bias_), 1, outputs_).row(0);
    return output_;
  }

  void backward(std::int64_t samples, std::span<const float> input,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool accumulate, const TensorReady& ready) override {
    const auto x = matrix(input, samples, inputs_);
    const auto dy = matrix(output_gradient, samples, outputs_);
    assign(matrix(bias_gradient_, 1, outputs_), dy.colwise().sum(), accumulate);
    ready(0);
    assign_product(matrix(weight_gradient_, inputs_, outputs_), x.transpose(), dy, accumulate);
    ready(1);
    if (!input_gradient.empty()) {
      matrix(input_gradient, samples, inputs_).noalias() =
          dy * matrix(std::span<const float>(weight_), inputs_, outputs_).transpose();
    }
  }

 private:
  std::string name_;
  std::int64_t inputs_;
  std::int64_t outputs_;
  std::span<float> bias_;
  std::span<float> weight_;
  std::span<float> bias_gradient_;
  std::span<float> weight_gradient_;
  std::vector<float> output_;
};

}  // namespace

std::vector<TensorSpec> dense_tensors(const std::string& name, std::int64_t inputs,
                                      std::int64_t outputs) {
  return {{name + ".bias", {outputs}, 0}, {name + ".weight", {inputs, outputs}, inputs}};
}

std::unique_ptr<Layer> make_dense(const std::string& name, std::int64_t inputs,
                                  std::int64_t outputs) {
  return std::make_unique<Dense>(name, inputs, outputs);
}

}  // namespace rackrail::trainer
