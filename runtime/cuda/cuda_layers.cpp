#include "runtime/cuda/cuda_layers.hpp"

#include <limits>
#include <string>

#include "base/error.hpp"
#include "runtime/cuda/cuda_compute.hpp"

namespace rackrail::runtime {
namespace {

using trainer::ImageShape;
using trainer::TensorReady;
using trainer::TensorSpec;

constexpr std::size_t kWindowPixels = 9;

std::size_t size_of(std::int64_t value) { return static_cast<std::size_t>(value); }

ImageSize image_size(const ImageShape& shape) {
  return {static_cast<unsigned>(shape.height), static_cast<unsigned>(shape.width),
          static_cast<unsigned>(shape.channels)};
}

/// A bias and a matrix W: rows of inputs times W, plus the bias, are rows of outputs.
class AffineMap {
 public:
  AffineMap(CudaCompute& compute, std::size_t inputs, std::size_t outputs)
      : compute_(compute), inputs_(inputs), outputs_(outputs) {}

  void bind(std::span<float> parameters, std::span<float> gradients) {
    bias_ = parameters.first(outputs_);
    weight_ = parameters.subspan(outputs_);
    bias_gradient_ = gradients.first(outputs_);
    weight_gradient_ = gradients.subspan(outputs_);
  }

  void forward(std::size_t rows, const float* input, float* output) const {
    compute_.cublas().multiply({input, inputs_}, {weight_.data(), outputs_}, output, rows, outputs_,
                               inputs_, false);
    add_bias(bias_.data(), rows, outputs_, output, compute_.launch());
  }

  /// The gradients of both; `ready` as Layer::backward has it.
  void parameter_gradients(std::size_t rows, const float* input, const float* output_gradient,
                           bool accumulate, const TensorReady& ready) const {
    const Cublas& cublas = compute_.cublas();
    cublas.multiply({compute_.ones(rows), rows}, {output_gradient, outputs_}, bias_gradient_.data(),
                    1, outputs_, rows, accumulate);
    ready(0);
    cublas.multiply({input, inputs_, true}, {output_gradient, outputs_}, weight_gradient_.data(),
                    inputs_, outputs_, rows, accumulate);
    ready(1);
  }

  void input_gradient(std::size_t rows, const float* output_gradient, float* into) const {
    compute_.cublas().multiply({output_gradient, outputs_}, {weight_.data(), outputs_, true}, into,
                               rows, inputs_, outputs_, false);
  }

 private:
  CudaCompute& compute_;
  std::size_t inputs_;
  std::size_t outputs_;
  std::span<float> bias_;
  std::span<float> weight_;
  std::span<float> bias_gradient_;
  std::span<float> weight_gradient_;
};

class CudaDense final : public trainer::Layer {
 public:
  CudaDense(CudaCompute& compute, const trainer::LayerSpec& spec)
      : compute_(compute),
        spec_(spec),
        map_(compute, size_of(spec.input.features()), size_of(spec.outputs)) {}

  ImageShape output_shape() const override { return output_of(spec_); }
  std::int64_t activations_per_sample() const override { return spec_.outputs; }
  std::vector<TensorSpec> tensors() const override {
    return trainer::dense_tensors(spec_.name, spec_.input.features(), spec_.outputs);
  }
  void bind(std::span<float> parameters, std::span<float> gradients) override {
    map_.bind(parameters, gradients);
  }

  std::span<const float> forward(std::int64_t samples, std::span<const float> input) override {
    const std::span<float> output =
        trainer::at_least(compute_, output_, size_of(samples * spec_.outputs));
    map_.forward(size_of(samples), input.data(), output.data());
    return output;
  }
  void backward(std::int64_t samples, std::span<const float> input,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool accumulate, const TensorReady& ready) override {
    map_.parameter_gradients(size_of(samples), input.data(), output_gradient.data(), accumulate,
                             ready);
    if (!input_gradient.empty()) {
      map_.input_gradient(size_of(samples), output_gradient.data(), input_gradient.data());
    }
  }

 private:
  CudaCompute& compute_;
  trainer::LayerSpec spec_;
  AffineMap map_;
  trainer::Floats output_;
};

/// As on the host, one matrix product per batch over the windows around all pixels.
class CudaConvolution final : public trainer::Layer {
 public:
  CudaConvolution(CudaCompute& compute, const trainer::LayerSpec& spec)
      : compute_(compute),
        spec_(spec),
        window_(kWindowPixels * size_of(spec.input.channels)),
        map_(compute, window_, size_of(spec.outputs)) {}

  ImageShape output_shape() const override { return output_of(spec_); }
  std::int64_t activations_per_sample() const override {
    return pixels() * (spec_.outputs + static_cast<std::int64_t>(window_));
  }
  std::vector<TensorSpec> tensors() const override {
    return trainer::convolution_tensors(spec_.name, spec_.input.channels, spec_.outputs);
  }
  void bind(std::span<float> parameters, std::span<float> gradients) override {
    map_.bind(parameters, gradients);
  }

  std::span<const float> forward(std::int64_t samples, std::span<const float> input) override {
    const std::size_t rows = size_of(samples * pixels());
    const std::span<float> windows = trainer::at_least(compute_, windows_, rows * window_);
    const std::span<float> output =
        trainer::at_least(compute_, output_, rows * size_of(spec_.outputs));
    gather_windows(input.data(), size_of(samples), image_size(spec_.input), windows.data(),
                   compute_.launch());
    map_.forward(rows, windows.data(), output.data());
    return output;
  }
  void backward(std::int64_t samples, std::span<const float> /*input*/,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool accumulate, const TensorReady& ready) override {
    const std::size_t rows = size_of(samples * pixels());
    float* const windows = windows_.span().data();
    map_.parameter_gradients(rows, windows, output_gradient.data(), accumulate, ready);
    if (!input_gradient.empty()) {
      // The windows are not needed any more, so their memory takes their gradient.
      map_.input_gradient(rows, output_gradient.data(), windows);
      scatter_windows(windows, size_of(samples), image_size(spec_.input), input_gradient.data(),
                      compute_.launch());
    }
  }

 private:
  std::int64_t pixels() const { return spec_.input.height * spec_.input.width; }

  CudaCompute& compute_;
  trainer::LayerSpec spec_;
  std::size_t window_;  ///< floats in a window
  AffineMap map_;
  trainer::Floats windows_;
  trainer::Floats output_;
};

class CudaRelu final : public trainer::Layer {
 public:
  CudaRelu(CudaCompute& compute, const trainer::LayerSpec& spec) : compute_(compute), spec_(spec) {}

  ImageShape output_shape() const override { return output_of(spec_); }
  std::int64_t activations_per_sample() const override { return spec_.input.features(); }

  std::span<const float> forward(std::int64_t /*samples*/, std::span<const float> input) override {
    const std::span<float> output = trainer::at_least(compute_, output_, input.size());
    relu_forward(input.data(), input.size(), output.data(), compute_.launch());
    return output;
  }
  void backward(std::int64_t /*samples*/, std::span<const float> /*input*/,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool /*accumulate*/, const TensorReady& /*ready*/) override {
    relu_backward(output_.span().data(), output_gradient.data(), input_gradient.size(),
                  input_gradient.data(), compute_.launch());
  }

 private:
  CudaCompute& compute_;
  trainer::LayerSpec spec_;
  trainer::Floats output_;
};

class CudaMaxPool final : public trainer::Layer {
 public:
  CudaMaxPool(CudaCompute& compute, const trainer::LayerSpec& spec)
      : compute_(compute), spec_(spec) {}

  ImageShape output_shape() const override { return output_of(spec_); }
  // The index of the winner takes as much room as a value.
  std::int64_t activations_per_sample() const override { return 2 * output_shape().features(); }

  std::span<const float> forward(std::int64_t samples, std::span<const float> input) override {
    if (input.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw RuntimeFailure("max-pooling on a GPU: found " + std::to_string(input.size()) +
                           " inputs, expected at most 4294967295: take smaller batches");
    }
    const std::size_t outputs = size_of(samples * output_shape().features());
    const std::span<float> output = trainer::at_least(compute_, output_, outputs);
    if (winner_.size() < outputs) {
      winner_ = DeviceBuffer<std::uint32_t>();
      winner_ = DeviceBuffer<std::uint32_t>(outputs);
    }
    max_pool_forward(input.data(), size_of(samples), image_size(spec_.input), output.data(),
                     winner_.data(), compute_.launch());
    return output;
  }
  void backward(std::int64_t samples, std::span<const float> /*input*/,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool /*accumulate*/, const TensorReady& /*ready*/) override {
    if (!input_gradient.empty()) {
      max_pool_backward(output_gradient.data(), winner_.data(), size_of(samples),
                        image_size(spec_.input), input_gradient.data(), compute_.launch());
    }
  }

 private:
  CudaCompute& compute_;
  trainer::LayerSpec spec_;
  trainer::Floats output_;
  DeviceBuffer<std::uint32_t> winner_;
};

}  // namespace

std::unique_ptr<trainer::Layer> make_cuda_layer(CudaCompute& compute,
                                                const trainer::LayerSpec& spec) {
  using Kind = trainer::LayerSpec::Kind;
  switch (spec.kind) {
    case Kind::kDense:
      return std::make_unique<CudaDense>(compute, spec);
    case Kind::kConvolution:
      return std::make_unique<CudaConvolution>(compute, spec);
    case Kind::kRelu:
      return std::make_unique<CudaRelu>(compute, spec);
    case Kind::kMaxPool:
      break;
  }
  return std::make_unique<CudaMaxPool>(compute, spec);
}

}  // namespace rackrail::runtime
