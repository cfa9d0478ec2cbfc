// Formulas for the error of codecs on normally distributed gradients.
#pragma once

#include <cstdint>

namespace rackrail::plan {

/// Upper tail of the standard normal distribution.
double normal_tail(double x);
/// Its density.
double normal_density(double x);
/// P(max |z| < x) of `count` independent standard normal numbers.
double normal_maximum_below(std::uint32_t count, double x);

/// Relative error of rounding to nearest with this many significant bits, far from the ends of the
/// range: 2⁻ᵇ/√3 · √(3/(8·ln 2)).
double rounding_error(int significant_bits);

}  // namespace rackrail::plan
