#include "runtime/trainer/codec_errors.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "plan/workload.hpp"
#include "runtime/codec.hpp"
#include "runtime/trainer/loader.hpp"
#include "runtime/trainer/optimizer.hpp"

namespace rackrail::trainer {
namespace {

/// Σ (D(C(g)) − g)².
double squared_error(const runtime::Codec& codec, std::span<const float> gradient,
                     runtime::EncodeKey key) {
  std::vector<std::byte> encoded(static_cast<std::size_t>(
      plan::encoded_size(codec.descriptor(), static_cast<std::int64_t>(gradient.size())).count()));
  std::vector<float> decoded(gradient.size());
  codec.encode(gradient, {}, key, encoded);
  codec.decode(encoded, decoded);
  double sum = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double error = static_cast<double>(decoded[i]) - static_cast<double>(gradient[i]);
    sum += error * error;
  }
  return sum;
}

double squared_norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return sum;
}

/// The gradients that strong codecs may meet.
std::vector<std::span<const float>> encodable(Model& model) {
  std::vector<std::span<const float>> all;
  std::vector<std::span<const float>> unprotected;
  for (const ParameterTensor& tensor : model.tensors()) {
    all.push_back(model.gradients().subspan(static_cast<std::size_t>(tensor.offset),
                                            static_cast<std::size_t>(tensor.elements)));
    if (!plan::GradientTensor{tensor.name, tensor.elements, {}}.is_protected()) {
      unprotected.push_back(all.back());
    }
  }
  return unprotected.empty() ? all : unprotected;
}

}  // namespace

std::map<std::string, double> measure_codec_errors(const TrainingConfig& config, Model& model,
                                                   const Dataset& data,
                                                   const CodecErrorOptions& options) {
  std::vector<std::unique_ptr<runtime::Codec>> codecs;
  for (const plan::Codec& codec : plan::all_codecs()) {
    if (codec.is_lossy()) {
      codecs.push_back(runtime::make_codec(codec));
    }
  }
  for (const plan::Codec& codec : options.also) {
    codecs.push_back(runtime::make_codec(codec));
  }
  BatchLoader loader(data, Shard({options.local_batch}, 0, 1), LoaderOptions{});
  Sgd sgd(model.tensors(), config.optimizer);
  const double rate = config.base_learning_rate * static_cast<double>(options.local_batch) /
                      static_cast<double>(config.base_batch);
  const std::vector<std::span<const float>> gradients = encodable(model);
  std::vector<std::vector<double>> errors(codecs.size());  // by codec and measured step
  for (int step = 1; step <= options.steps; ++step) {
    model.forward_backward(loader.next(), 1.0 / static_cast<double>(options.local_batch), false,
                           {});
    if (step % options.every == 0) {
      double norm = 0;
      for (const std::span<const float> gradient : gradients) {
        norm += squared_norm(gradient);
      }
      for (std::size_t c = 0; norm > 0 && c < codecs.size(); ++c) {
        double error = 0;
        for (std::size_t t = 0; t < gradients.size(); ++t) {
          const auto stream = static_cast<std::uint64_t>(step) * gradients.size() + t;
          error += squared_error(*codecs[c], gradients[t], {stream, 0});
        }
        errors[c].push_back(std::sqrt(error / norm));
      }
    }
    sgd.apply(model.parameters(), model.gradients(), rate);
  }
  std::map<std::string, double> medians;
  for (std::size_t c = 0; c < codecs.size(); ++c) {
    if (!errors[c].empty()) {
      const auto middle = errors[c].begin() + static_cast<std::ptrdiff_t>(errors[c].size() / 2);
      std::nth_element(errors[c].begin(), middle, errors[c].end());
      medians[plan::to_string(codecs[c]->descriptor())] = *middle;
    }
  }
  return medians;
}

}  // namespace rackrail::trainer
