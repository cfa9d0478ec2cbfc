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

void update(std::span<float> parameters, std::span<float> momentum,
            std::span<const float> gradients, const SgdStep& step) {
  float* w = parameters.data();
  float* v = momentum.data();
  const float* g = gradients.data();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    v[i] = step.momentum * v[i] + (step.scale * g[i] + step.decay * w[i]);
    w[i] -= step.rate * v[i];
  }
}

float decay_of(const ParameterTensor& tensor, const SgdOptions& options) {
  return tensor.shape.size() > 1 ? static_cast<float>(options.weight_decay) : 0.0F;
}

Sgd::Sgd(std::span<const ParameterTensor> tensors, const SgdOptions& options,
         std::shared_ptr<Compute> compute)
    : options_(options), compute_(std::move(compute)) {
  std::size_t elements = 0;
  for (const ParameterTensor& tensor : tensors) {
    regions_.push_back({static_cast<std::size_t>(tensor.offset),
                        static_cast<std::size_t>(tensor.elements), decay_of(tensor, options)});
    elements += static_cast<std::size_t>(tensor.elements);
  }
  momentum_ = compute_->make_floats(elements);
}

Sgd::Update Sgd::apply(std::span<float> parameters, std::span<const float> gradients,
                       double learning_rate) {
  Update update;
  update.gradient_norm = compute_->norm(gradients);
  if (!std::isfinite(update.gradient_norm)) {
    update.skipped = true;
    ++skipped_steps_;
    return update;
  }
  SgdStep step{.momentum = static_cast<float>(options_.momentum),
               .rate = static_cast<float>(learning_rate)};
  if (options_.clip_norm && update.gradient_norm > *options_.clip_norm) {
    update.clipped = true;
    step.scale = static_cast<float>(*options_.clip_norm / update.gradient_norm);
  }
  for (const DecayRegion& region : regions_) {
    step.decay = region.decay;
    compute_->update(parameters.subspan(region.begin, region.size),
                     momentum_.span().subspan(region.begin, region.size),
                     gradients.subspan(region.begin, region.size), step);
  }
  return update;
}

}  // namespace rackrail::trainer
