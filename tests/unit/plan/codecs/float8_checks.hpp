// What holds for every format of 8-bit floating point with a scale per block.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "plan/codecs/arithmetic.hpp"
#include "tests/unit/plan/codecs/sample.hpp"

namespace rackrail::plan::test {

/// A format in the terms of the OFP8 specification.
struct Float8 {
  CodecKind kind;
  int mantissa_bits;
  int bias;
  std::uint32_t largest_code;  ///< magnitudes above stand for no finite number
  float smallest_octave;       ///< of blocks with a scale: log₂ of their largest magnitude

  Codec codec(std::uint32_t block) const { return {.kind = kind, .block = block}; }

  /// What a magnitude of seven bits stands for.
  double value_of(std::uint32_t magnitude) const {
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const std::uint32_t mantissa = magnitude & ((1U << mantissa_bits) - 1);
    const double fraction = std::ldexp(static_cast<double>(mantissa), -mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                         : std::ldexp(1 + fraction, exponent - bias);
  }
  double largest() const { return value_of(largest_code); }
};

inline std::vector<std::byte> encode(const Codec& codec, const std::vector<float>& input) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(
      encoded_size(codec, static_cast<std::int64_t>(input.size())).count()));
  make_codec_arithmetic(codec)->encode(input, {}, {}, bytes);
  return bytes;
}

inline std::vector<float> round_trip(const Codec& codec, const std::vector<float>& input) {
  std::vector<float> output(input.size());
  make_codec_arithmetic(codec)->decode(encode(codec, input), output);
  return output;
}

inline double relative_difference(const std::vector<float>& output,
                                  const std::vector<float>& input) {
  std::vector<double> error;
  for (std::size_t i = 0; i < input.size(); ++i) {
    error.push_back(double{output[i]} - input[i]);
  }
  return norm(error) / norm({input.begin(), input.end()});
}

inline std::vector<float> as_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

/// The nearest number is chosen, of two the one with an even code.
inline void check_nearest(const Float8& format, unsigned seed) {
  CAPTURE(seed);
  std::mt19937 random(seed);
  // The largest number in the block makes the scale 1.
  std::vector<float> input{static_cast<float>(format.largest())};
  for (std::uint32_t code = 0; code < format.largest_code; ++code) {
    const double middle = (format.value_of(code) + format.value_of(code + 1)) / 2;
    const auto rounded = static_cast<float>(middle);
    for (const float x :
         {static_cast<float>(format.value_of(code)), rounded, std::nextafter(rounded, 0.0F),
          std::nextafter(rounded, std::numeric_limits<float>::infinity())}) {
      input.push_back(x);
      input.push_back(-x);
    }
  }
  const auto top = static_cast<float>(std::log2(format.largest()));
  // From below half the smallest number on.
  const auto bottom = static_cast<float>(1 - format.bias - format.mantissa_bits - 3);
  std::uniform_real_distribution<float> exponent(bottom, top);
  for (int i = 0; i < 20'000; ++i) {
    input.push_back(std::exp2(exponent(random)) * (i % 2 == 0 ? 1.0F : -1.0F));
  }
  const Codec codec = format.codec(1U << 20U);
  const std::vector<std::byte> bytes = encode(codec, input);
  float scale = 0;
  std::memcpy(&scale, bytes.data(), sizeof scale);
  REQUIRE(scale == 1);
  const std::vector<float> output = round_trip(codec, input);
  for (std::size_t i = 0; i < input.size(); ++i) {
    const double size = std::abs(double{input[i]});
    std::uint32_t nearest = 0;
    for (std::uint32_t code = 1; code <= format.largest_code; ++code) {
      const double gain =
          std::abs(size - format.value_of(nearest)) - std::abs(size - format.value_of(code));
      if (gain > 0 || (gain == 0 && code % 2 == 0)) {
        nearest = code;
      }
    }
    CAPTURE(input[i]);
    REQUIRE(static_cast<std::uint32_t>(bytes[4 + i]) ==
            (nearest | (std::signbit(input[i]) ? 0x80U : 0U)));
    REQUIRE(double{output[i]} == std::copysign(format.value_of(nearest), input[i]));
  }
}

/// The largest of a block is kept to 20 bits, whatever its size.
inline void check_largest(const Float8& format, unsigned seed) {
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> exponent(format.smallest_octave, 127);
  const Codec codec = format.codec(1);
  for (int i = 0; i < 10'000; ++i) {
    const float largest = std::exp2(exponent(random));
    const float output = round_trip(codec, {largest})[0];
    CAPTURE(largest);
    REQUIRE(output <= largest);
    REQUIRE(output >= largest * (1 - 0x1p-19F));
  }
  CHECK(round_trip(codec, {std::exp2(format.smallest_octave - 3)})[0] == 0);
}

/// The error model is what encoding normal values gives.
inline void check_error_model(const Float8& format) {
  for (const std::uint32_t block : {2U, 8U, 32U, 256U, 2048U, 65536U}) {
    const std::uint64_t seed = 37 + block;
    CAPTURE(seed, block);
    const auto input = as_floats(normal_values(1 << 18, 1e-3, seed));
    const Codec codec = format.codec(block);
    CHECK(relative_error(codec) ==
          Approx(relative_difference(round_trip(codec, input), input)).epsilon(0.02));
  }
  CHECK(relative_error(format.codec(1)) == Approx(0).margin(1e-12));
}

}  // namespace rackrail::plan::test
