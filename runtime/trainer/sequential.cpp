#include "runtime/trainer/sequential.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/random.hpp"

namespace rackrail::trainer {
namespace {

/// Samples that evaluation takes through the model at a time.
constexpr std::int64_t kEvaluationBatch = 64;

}  // namespace

Sequential::Sequential(const std::vector<LayerSpec>& layers, std::uint64_t seed,
                       std::shared_ptr<Compute> compute)
    : compute_(std::move(compute)), first_tensor_(layers.size()), outputs_(layers.size()) {
  for (const LayerSpec& layer : layers) {
    layers_.push_back(compute_->make_layer(layer));
  }
  std::int64_t elements = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> range(layers_.size());
  for (std::size_t l = layers_.size(); l-- > 0;) {
    first_tensor_[l] = tensors_.size();
    range[l].first = elements;
    for (TensorSpec& spec : layers_[l]->tensors()) {
      const std::int64_t size = std::accumulate(spec.shape.begin(), spec.shape.end(),
                                                std::int64_t{1}, std::multiplies<>());
      tensors_.push_back({std::move(spec.name), std::move(spec.shape), elements, size});
      fan_in_.push_back(spec.fan_in);
      elements += size;
    }
    range[l].second = elements - range[l].first;
  }
  parameters_ = compute_->make_floats(static_cast<std::size_t>(elements));
  gradients_ = compute_->make_floats(static_cast<std::size_t>(elements));
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const auto begin = static_cast<std::size_t>(range[l].first);
    const auto size = static_cast<std::size_t>(range[l].second);
    layers_[l]->bind(parameters_.span().subspan(begin, size),
                     gradients_.span().subspan(begin, size));
  }
  initialise(seed);
}

void Sequential::initialise(std::uint64_t seed) {
  std::vector<float> values(parameters_.size());
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (fan_in_[t] == 0) {
      continue;
    }
    const double limit = std::sqrt(6.0 / static_cast<double>(fan_in_[t]));
    const std::uint64_t key = random_bits(seed, t);
    for (std::int64_t i = 0; i < tensors_[t].elements; ++i) {
      const double unit = random_unit(key, static_cast<std::uint64_t>(i));
      values[static_cast<std::size_t>(tensors_[t].offset + i)] =
          static_cast<float>(limit * (2.0 * unit - 1.0));
    }
  }
  compute_->load(values, parameters_.span());
}

void Sequential::forward(const BatchView& batch) {
  features_ = compute_->take_in(batch.features);
  std::span<const float> input = features_;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    outputs_[l] = layers_[l]->forward(batch.count(), input);
    input = outputs_[l];
  }
}

double Sequential::forward_backward(const BatchView& batch, double sample_weight, bool accumulate,
                                    const PassHooks& hooks) {
  forward(batch);
  std::span<float> output_gradient = at_least(*compute_, output_gradient_, outputs_.back().size());
  const LossSum sum = compute_->softmax_cross_entropy(outputs_.back(), batch.labels, sample_weight,
                                                      output_gradient);
  if (hooks.forward_done) {
    hooks.forward_done();
  }
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const std::span<const float> input = l == 0 ? features_ : outputs_[l - 1];
    // Nobody asks for the gradient of the data.
    const std::span<float> input_gradient =
        at_least(*compute_, input_gradient_, l == 0 ? 0 : input.size());
    layers_[l]->backward(batch.count(), input, output_gradient, input_gradient, accumulate,
                         [&](std::size_t tensor) {
                           if (hooks.gradient_ready) {
                             hooks.gradient_ready(first_tensor_[l] + tensor);
                           }
                         });
    std::swap(output_gradient_, input_gradient_);
    output_gradient = input_gradient;
  }
  return sum.loss;
}

Evaluation Sequential::evaluate(const BatchView& samples) {
  const auto width = samples.features.size() / samples.labels.size();
  LossSum total;
  for (std::int64_t begin = 0; begin < samples.count(); begin += kEvaluationBatch) {
    const auto first = static_cast<std::size_t>(begin);
    const auto count =
        static_cast<std::size_t>(std::min(kEvaluationBatch, samples.count() - begin));
    const BatchView part{samples.features.subspan(first * width, count * width),
                         samples.labels.subspan(first, count)};
    forward(part);
    const LossSum sum = compute_->softmax_cross_entropy(outputs_.back(), part.labels, 0, {});
    total.loss += sum.loss;
    total.correct += sum.correct;
  }
  const auto count = static_cast<double>(samples.count());
  return {samples.count(), total.loss / count, static_cast<double>(total.correct) / count};
}

std::int64_t Sequential::activations_per_sample() const {
  std::int64_t sum = 0;
  for (const auto& layer : layers_) {
    sum += layer->activations_per_sample();
  }
  return sum;
}

}  // namespace rackrail::trainer
