// 3×3 convolution as one matrix product per batch (im2col).
//
// Each output pixel of each sample is a row of the column matrix: the 3×3×C inputs around it, zeros
// outside of the image. Output = columns · W + b with W [3·3·C][outputs]. The column matrix is kept
// for backward: dW = columnsᵀ · dy, and dy · Wᵀ is added back to the pixels it was gathered from.
// Memory: nine times the input.
#include <algorithm>

#include <Eigen/Core>

#include "runtime/trainer/layer.hpp"
#include "runtime/trainer/matrix.hpp"

namespace rackrail::trainer {
namespace {

constexpr std::int64_t kWindow = 3;

class Convolution final : public Layer {
 public:
  Convolution(const std::string& name, const ImageShape& input, std::int64_t outputs)
      : name_(name), input_(input), outputs_(outputs) {}

  ImageShape output_shape() const override { return {input_.height, input_.width, outputs_}; }
  std::int64_t activations_per_sample() const override {
    return pixels() * (outputs_ + column_width());
  }
  std::vector<TensorSpec> tensors() const override {
    return convolution_tensors(name_, input_.channels, outputs_);
  }

  void bind(std::span<float> parameters, std::span<float> gradients) override {
    const auto bias = static_cast<std::size_t>(outputs_);
    bias_ = parameters.first(bias);
    weight_ = parameters.subspan(bias);
    bias_gradient_ = gradients.first(bias);
    weight_gradient_ = gradients.subspan(bias);
  }

  std::span<const float> forward(std::int64_t samples, std::span<const float> input) override {
    const std::int64_t rows = samples * pixels();
    columns_.resize(static_cast<std::size_t>(rows * column_width()));
    output_.resize(static_cast<std::size_t>(rows * outputs_));
    gather(samples, input);
    auto y = matrix(std::span(output_), rows, outputs_);
    y.noalias() = matrix(std::span<const float>(columns_), rows, column_width()) *
                  matrix(std::span<const float>(weight_), column_width(), outputs_);
    y.rowwise() += matrix(std::span<const float>(bias_), 1, outputs_).row(0);
    return output_;
  }

  void backward(std::int64_t samples, std::span<const float> /*input*/,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool accumulate, const TensorReady& ready) override {
    const std::int64_t rows = samples * pixels();
    const auto dy = matrix(output_gradient, rows, outputs_);
    const auto columns = matrix(std::span<const float>(columns_), rows, column_width());
    assign(matrix(bias_gradient_, 1, outputs_), dy.colwise().sum(), accumulate);
    ready(0);
    assign_product(matrix(weight_gradient_, column_width(), outputs_), columns.transpose(), dy,
                   accumulate);
    ready(1);
    if (!input_gradient.empty()) {
      // The columns are not needed any more, so their memory takes their gradient.
      matrix(std::span(columns_), rows, column_width()).noalias() =
          dy * matrix(std::span<const float>(weight_), column_width(), outputs_).transpose();
      scatter_add(samples, input_gradient);
    }
  }

 private:
  std::int64_t pixels() const { return input_.height * input_.width; }
  std::int64_t column_width() const { return kWindow * kWindow * input_.channels; }

  /// Calls visit(column element, image element or −1 outside) for each run of C values.
  template <typename Visit>
  void for_each_run(std::int64_t samples, const Visit& visit) const {
    std::int64_t column = 0;
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::int64_t image = sample * input_.features();
      for (std::int64_t y = 0; y < input_.height; ++y) {
        for (std::int64_t x = 0; x < input_.width; ++x) {
          for (std::int64_t dy = -1; dy <= 1; ++dy) {
            for (std::int64_t dx = -1; dx <= 1; ++dx, column += input_.channels) {
              const bool inside =
                  y + dy >= 0 && y + dy < input_.height && x + dx >= 0 && x + dx < input_.width;
              visit(column,
                    inside ? image + ((y + dy) * input_.width + x + dx) * input_.channels : -1);
            }
          }
        }
      }
    }
  }

  void gather(std::int64_t samples, std::span<const float> input) {
    for_each_run(samples, [&](std::int64_t column, std::int64_t pixel) {
      if (pixel < 0) {
        std::fill_n(columns_.data() + column, input_.channels, 0.0F);
      } else {
        std::copy_n(input.data() + pixel, input_.channels, columns_.data() + column);
      }
    });
  }

  void scatter_add(std::int64_t samples, std::span<float> input_gradient) const {
    std::ranges::fill(input_gradient, 0.0F);
    for_each_run(samples, [&](std::int64_t column, std::int64_t pixel) {
      if (pixel >= 0) {
        for (std::int64_t c = 0; c < input_.channels; ++c) {
          input_gradient[static_cast<std::size_t>(pixel + c)] +=
              columns_[static_cast<std::size_t>(column + c)];
        }
      }
    });
  }

  std::string name_;
  ImageShape input_;
  std::int64_t outputs_;
  std::span<float> bias_;
  std::span<float> weight_;
  std::span<float> bias_gradient_;
  std::span<float> weight_gradient_;
  std::vector<float> columns_;
  std::vector<float> output_;
};

}  // namespace

std::vector<TensorSpec> convolution_tensors(const std::string& name, std::int64_t input_channels,
                                            std::int64_t output_channels) {
  return {{name + ".bias", {output_channels}, 0},
          {name + ".weight",
           {kWindow, kWindow, input_channels, output_channels},
           kWindow * kWindow * input_channels}};
}

std::unique_ptr<Layer> make_convolution(const std::string& name, const ImageShape& input,
                                        std::int64_t output_channels) {
  return std::make_unique<Convolution>(name, input, output_channels);
}

}  // namespace rackrail::trainer
