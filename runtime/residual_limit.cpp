#include "runtime/residual_limit.hpp"

#include <algorithm>
#include <cmath>

namespace rackrail::runtime {
namespace {

constexpr double kSmoothing = 0.9;  // of the usual norm, per step

}  // namespace

double norm_of(std::span<const float> values) {
  // Eight sums, so that they are added side by side.
  constexpr std::size_t kLanes = 8;
  double sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) {
    sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  double sum = 0;
  for (const double part : sums) {
    sum += part;
  }
  return std::sqrt(sum);
}

void limit_residual(std::vector<float>& usual, std::size_t slice, double norm,
                    std::span<float> residual) {
  if (!std::isfinite(norm)) {
    std::ranges::fill(residual, 0.0F);
    return;
  }
  if (norm == 0) {
    return;  // nothing was there to be left out, and nothing of it is usual
  }
  usual.resize(std::max(usual.size(), slice + 1));
  const double before = usual[slice];
  if (before == 0) {
    usual[slice] = static_cast<float>(norm);
    return;
  }
  const double most = kUsualSpread * before;
  if (norm > most) {
    const auto factor = static_cast<float>(before / norm);
    for (float& value : residual) {
      value *= factor;
    }
  }
  // By a tenth at most in a step: so that one unusual gradient does not make the next one usual.
  usual[slice] =
      static_cast<float>(kSmoothing * before + (1 - kSmoothing) * std::min(norm, 2 * before));
}

}  // namespace rackrail::runtime
