// Gradients to encode, and what their error is measured with.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace rackrail::plan::test {

inline double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) {
    sum += v * v;
  }
  return std::sqrt(sum);
}

inline std::vector<double> normal_values(std::size_t count, double deviation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> values(count);
  for (double& v : values) {
    v = normal(random);
  }
  return values;
}

}  // namespace rackrail::plan::test
