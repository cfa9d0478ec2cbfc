#include "runtime/trainer/optimizer.hpp"

#include <array>
#include <cmath>
#include <numeric>

namespace rackrail::trainer {

double euclidean_norm(std::span<const float> values) {
  // Independent sums hide the latency of an addition; the compiler may not reorder them by itself.
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= values.size(); i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) {
    const double value = values[i];
    sums[0] += value * value;
  }
  return std::sqrt(std::accumulate(sums.begin(), sums.end(), 0.0));
}

Sgd::Sgd(std::span<const ParameterTensor> tensors, const SgdOptions& options) : options_(options) {
  for (const ParameterTensor& tensor : tensors) {
    const float decay = tensor.shape.size() > 1 ? static_cast<float>(options.weight_decay) : 0.0F;
    regions_.push_back({static_cast<std::size_t>(tensor.offset),
                        static_cast<std::size_t>(tensor.elements), decay});
    momentum_.resize(momentum_.size() + static_cast<std::size_t>(tensor.elements));
  }
}

Sgd::Update Sgd::apply(std::span<float> parameters, std::span<const float> gradients,
                       double learning_rate) {
  Update update;
  update.gradient_norm = euclidean_norm(gradients);
  if (!std::isfinite(update.gradient_norm)) {
    update.skipped = true;
    ++skipped_steps_;
    return update;
  }
  float scale = 1;
  if (options_.clip_norm && update.gradient_norm > *options_.clip_norm) {
    update.clipped = true;
    scale = static_cast<float>(*options_.clip_norm / update.gradient_norm);
  }
  const auto momentum = static_cast<float>(options_.momentum);
  const auto rate = static_cast<float>(learning_rate);
  for (const Region& region : regions_) {
    float* w = parameters.data() + region.begin;
    float* v = momentum_.data() + region.begin;
    const float* g = gradients.data() + region.begin;
    for (std::size_t i = 0; i < region.size; ++i) {
      v[i] = momentum * v[i] + (scale * g[i] + region.decay * w[i]);
      w[i] -= rate * v[i];
    }
  }
  return update;
}

}  // namespace rackrail::trainer
