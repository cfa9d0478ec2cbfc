#include "runtime/trainer/parameter_average.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/trainer/optimizer.hpp"

namespace rackrail::trainer {

void ParameterAverage::begin(std::span<const float> parameters) {
  common_.assign(parameters.begin(), parameters.end());
}

void ParameterAverage::leave(std::span<const float> parameters, std::span<float> part) const {
  for (std::size_t i = 0; i < part.size(); ++i) {
    part[i] = share_ * (parameters[i] - common_[i]);
  }
}

bool ParameterAverage::arrive(std::span<const float> sum, std::span<float> parameters) {
  const bool is_finite = std::isfinite(euclidean_norm(sum));
  for (std::size_t i = 0; is_finite && i < sum.size(); ++i) {
    common_[i] += sum[i];
  }
  std::ranges::copy(common_, parameters.begin());
  return is_finite;
}

}  // namespace rackrail::trainer
