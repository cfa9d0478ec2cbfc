#include "plan/codecs/error_models.hpp"

#include <cmath>
#include <numbers>

namespace rackrail::plan {

double normal_tail(double x) { return 0.5 * std::erfc(x / std::numbers::sqrt2); }

double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

double normal_maximum_below(std::uint32_t count, double x) {
  return std::exp(count * std::log1p(-2 * normal_tail(x)));
}

double rounding_error(int significant_bits) {
  // Half a unit in the last place is 2⁻ᵇ of the power of two below the number; a magnitude that is
  // spread evenly over an octave on a logarithmic scale has a mean of m⁻² of 3/(8·ln 2).
  return std::ldexp(1.0, -significant_bits) / std::sqrt(3.0) *
         std::sqrt(3 / (8 * std::numbers::ln2));
}

}  // namespace rackrail::plan
