#include "runtime/trainer/learning_rate.hpp"

#include <algorithm>
#include <numbers>

namespace rackrail::trainer {
namespace {

/// sin(x) for |x| ≤ π/2 by its Taylor series; the first term left out is below 1e-17.
double sine(double x) {
  const double square = x * x;
  double term = x;
  double sum = x;
  for (int n = 2; n <= 20; n += 2) {
    term = -term * square / (n * (n + 1));
    sum += term;
  }
  return sum;
}

}  // namespace

double LearningRate::at(std::int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (decay == Decay::kConstant) {
    return peak;
  }
  const std::int64_t span = std::max<std::int64_t>(total_steps - warmup_steps, 1);
  const double progress =
      std::min(1.0, static_cast<double>(step - warmup_steps) / static_cast<double>(span));
  // (1 + cos πp) / 2 = (1 − sin π(p − ½)) / 2
  return peak * 0.5 * (1.0 - sine(std::numbers::pi * (progress - 0.5)));
}

double scaled_learning_rate(double base_rate, std::int64_t base_batch, std::int64_t global_batch) {
  return base_rate * static_cast<double>(global_batch) / static_cast<double>(base_batch);
}

}  // namespace rackrail::trainer
