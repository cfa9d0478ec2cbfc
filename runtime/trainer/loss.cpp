#include "runtime/trainer/loss.hpp"

#include <algorithm>
#include <cmath>

namespace rackrail::trainer {

LossSum softmax_cross_entropy(std::span<const float> outputs, std::span<const std::int32_t> labels,
                              double weight, std::span<float> gradient) {
  const std::size_t classes = outputs.size() / labels.size();
  LossSum sum;
  for (std::size_t sample = 0; sample < labels.size(); ++sample) {
    const std::span row = outputs.subspan(sample * classes, classes);
    const auto label = static_cast<std::size_t>(labels[sample]);
    // Relative to the largest output, so that no exponential overflows.
    const auto largest = std::ranges::max_element(row);
    double total = 0;
    for (const float output : row) {
      total += std::exp(static_cast<double>(output) - static_cast<double>(*largest));
    }
    const double log_total = std::log(total) + static_cast<double>(*largest);
    sum.loss += log_total - static_cast<double>(row[label]);
    sum.correct += static_cast<std::size_t>(largest - row.begin()) == label ? 1 : 0;
    for (std::size_t c = 0; c < (gradient.empty() ? 0 : classes); ++c) {
      const double probability = std::exp(static_cast<double>(row[c]) - log_total);
      gradient[sample * classes + c] =
          static_cast<float>(weight * (probability - (c == label ? 1.0 : 0.0)));
    }
  }
  return sum;
}

}  // namespace rackrail::trainer
