#include "tests/unit/runtime/trainer/reference_network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace rackrail::trainer::test {
namespace {

using Values = std::vector<double>;

Values dense(const Values& x, std::span<const double> weight, std::span<const double> bias) {
  Values y(bias.begin(), bias.end());
  for (std::size_t o = 0; o < y.size(); ++o) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[o] += x[i] * weight[i * y.size() + o];
    }
  }
  return y;
}

void rectify(Values& values) {
  for (double& value : values) {
    value = std::max(value, 0.0);
  }
}

Values convolve(const Values& x, const ImageShape& shape, std::span<const double> weight,
                std::span<const double> bias) {
  const auto outputs = static_cast<std::int64_t>(bias.size());
  const auto pixel = [&](std::int64_t row, std::int64_t column, std::int64_t channel) {
    if (row < 0 || row >= shape.height || column < 0 || column >= shape.width) {
      return 0.0;
    }
    return x[static_cast<std::size_t>((row * shape.width + column) * shape.channels + channel)];
  };
  Values y;
  for (std::int64_t row = 0; row < shape.height; ++row) {
    for (std::int64_t column = 0; column < shape.width; ++column) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        double sum = bias[static_cast<std::size_t>(o)];
        for (std::int64_t i = 0; i < 3; ++i) {
          for (std::int64_t j = 0; j < 3; ++j) {
            for (std::int64_t c = 0; c < shape.channels; ++c) {
              const std::int64_t w = ((i * 3 + j) * shape.channels + c) * outputs + o;
              sum += pixel(row + i - 1, column + j - 1, c) * weight[static_cast<std::size_t>(w)];
            }
          }
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

Values pool(const Values& x, const ImageShape& shape) {
  Values y;
  for (std::int64_t row = 0; row < shape.height; row += 2) {
    for (std::int64_t column = 0; column < shape.width; column += 2) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        double largest = -std::numeric_limits<double>::infinity();
        for (const std::int64_t i : {0, 1}) {
          for (const std::int64_t j : {0, 1}) {
            const std::int64_t at = ((row + i) * shape.width + column + j) * shape.channels + c;
            largest = std::max(largest, x[static_cast<std::size_t>(at)]);
          }
        }
        y.push_back(largest);
      }
    }
  }
  return y;
}

}  // namespace

ReferenceNetwork::ReferenceNetwork(ModelConfig config, ImageShape input, std::int64_t classes,
                                   std::span<const ParameterTensor> tensors)
    : config_(std::move(config)), input_(input), classes_(classes), tensors_(tensors) {}

std::span<const double> ReferenceNetwork::tensor(std::span<const double> parameters,
                                                 const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &ParameterTensor::name);
  if (found == tensors_.end()) {
    throw std::logic_error("the model has no tensor " + name);
  }
  return parameters.subspan(static_cast<std::size_t>(found->offset),
                            static_cast<std::size_t>(found->elements));
}

std::vector<double> ReferenceNetwork::outputs(std::span<const double> parameters,
                                              std::span<const float> image) const {
  Values x(image.begin(), image.end());
  ImageShape shape = input_;
  for (std::size_t i = 1; i <= config_.channels.size(); ++i) {
    const std::string name = "conv" + std::to_string(i);
    x = convolve(x, shape, tensor(parameters, name + ".weight"),
                 tensor(parameters, name + ".bias"));
    rectify(x);
    shape.channels = config_.channels[i - 1];
  }
  if (config_.kind == "cnn") {
    x = pool(x, shape);
  }
  for (std::size_t i = 1; i <= config_.hidden.size() + 1; ++i) {
    const std::string name = "fc" + std::to_string(i);
    x = dense(x, tensor(parameters, name + ".weight"), tensor(parameters, name + ".bias"));
    if (i <= config_.hidden.size()) {
      rectify(x);
    }
  }
  return x;
}

double ReferenceNetwork::loss(std::span<const double> parameters, const BatchView& batch) const {
  const auto width = static_cast<std::size_t>(input_.features());
  double sum = 0;
  for (std::size_t sample = 0; sample < batch.labels.size(); ++sample) {
    const Values z = outputs(parameters, batch.features.subspan(sample * width, width));
    double total = 0;
    for (const double value : z) {
      total += std::exp(value);
    }
    sum += std::log(total) - z.at(static_cast<std::size_t>(batch.labels[sample]));
  }
  return sum;
}

std::vector<double> ReferenceNetwork::gradient(std::span<const double> parameters,
                                               const BatchView& batch) const {
  constexpr double kStep = 1e-6;
  Values moved(parameters.begin(), parameters.end());
  Values gradient;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    moved[i] = parameters[i] + kStep;
    const double above = loss(moved, batch);
    moved[i] = parameters[i] - kStep;
    const double below = loss(moved, batch);
    moved[i] = parameters[i];
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

}  // namespace rackrail::trainer::test
