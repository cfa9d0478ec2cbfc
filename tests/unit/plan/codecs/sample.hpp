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

/// Root mean square of the relative error of rounding normal values to so many significant bits,
/// over deviations of an octave: it depends on where they lie between powers of two.
inline double error_of_rounding(int significant_bits, std::uint64_t seed) {
  double sum = 0;
  constexpr int kScales = 16;
  for (int i = 0; i < kScales; ++i) {
    const auto values = normal_values(1 << 14, std::exp2(static_cast<double>(i) / kScales), seed);
    std::vector<double> error;
    for (const double v : values) {
      int exponent = 0;
      std::frexp(v, &exponent);
      const double unit = std::ldexp(1.0, exponent - significant_bits);
      error.push_back(std::nearbyint(v / unit) * unit - v);
    }
    sum += std::pow(norm(error) / norm(values), 2);
  }
  return std::sqrt(sum / kScales);
}

}  // namespace rackrail::plan::test
