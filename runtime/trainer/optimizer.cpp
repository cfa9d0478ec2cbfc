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

void update(std::span<float> w, std::span<float> v, std::span<const float> g,
            const SgdFactors& factors) {
  const auto [momentum, rate, scale, decay] = factors;
  for (std::size_t i = 0; i < w.size(); ++i) {
    v[i] = momentum * v[i] + (scale * g[i] + decay * w[i]);
    w[i] -= rate * v[i];
  }
}

float decay_of(const ParameterTensor& tensor, const SgdOptions& options) {
  return tensor.shape.size() > 1 ? static_cast<float>(options.weight_decay) : 0.0F;
}

Sgd::Sgd(std::span<const ParameterTensor> tensors, const SgdOptions& options) : options_(options) {
  for (const ParameterTensor& tensor : tensors) {
    regions_.push_back({static_cast<std::size_t>(tensor.offset),
                        static_cast<std::size_t>(tensor.elements), decay_of(tensor, options)});
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
  for (const DecayRegion& region : regions_) {
    const auto of = [&](auto arena) { return arena.subspan(region.begin, region.size); };
    trainer::update(of(parameters), of(std::span<float>(momentum_)), of(gradients),
                    {momentum, rate, scale, region.decay});
  }
  return update;
}

}  // namespace rackrail::trainer
