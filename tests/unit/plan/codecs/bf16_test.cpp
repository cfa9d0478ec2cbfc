#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "plan/codecs/arithmetic.hpp"
#include "tests/unit/plan/codecs/sample.hpp"

namespace rackrail::plan::bf16_test {
namespace {

std::vector<std::uint16_t> encode(const std::vector<float>& input) {
  std::vector<std::uint16_t> codes(input.size());
  make_codec_arithmetic({.kind = CodecKind::kBf16})
      ->encode(input, {}, {}, std::as_writable_bytes(std::span(codes)));
  return codes;
}

std::vector<float> decode(const std::vector<std::uint16_t>& codes) {
  std::vector<float> output(codes.size());
  make_codec_arithmetic({.kind = CodecKind::kBf16})
      ->decode(std::as_bytes(std::span(codes)), output);
  return output;
}

/// The bfloat16 number that code stands for, from the definition: sign, 8 bits of exponent with
/// bias 127, 7 bits of mantissa. The code after the largest one counts as 2¹²⁸.
double value_of(std::uint32_t magnitude) {
  const int exponent = static_cast<int>(magnitude >> 7U);
  const double mantissa = static_cast<double>(magnitude & 0x7fU) / 128;
  return exponent == 0 ? std::ldexp(mantissa, -126) : std::ldexp(1 + mantissa, exponent - 127);
}

TEST_CASE("bf16: every code decodes to its number, and back to itself") {
  std::vector<std::uint16_t> codes(1U << 16U);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint16_t>(i);
  }
  const std::vector<float> values = decode(codes);
  const std::vector<std::uint16_t> again = encode(values);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint32_t magnitude = codes[i] & 0x7fffU;
    if (magnitude > 0x7f80U) {
      REQUIRE(std::isnan(values[i]));
      REQUIRE((again[i] & 0x7fffU) > 0x7f80U);
      continue;
    }
    REQUIRE(again[i] == codes[i]);
    REQUIRE(std::signbit(values[i]) == (codes[i] >= 0x8000U));
    if (magnitude < 0x7f80U) {
      REQUIRE(double{std::abs(values[i])} == value_of(magnitude));
    } else {
      REQUIRE(std::isinf(values[i]));
    }
  }
}

TEST_CASE("bf16: the nearest number is chosen, of two the one with an even code") {
  const unsigned seed = 23;
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::vector<float> input;
  for (int i = 0; i < 200'000; ++i) {
    auto bits = static_cast<std::uint32_t>(random());
    if (i % 4 == 0) {
      bits = (bits & 0xffff0000U) | 0x8000U;  // half-way
    }
    if ((bits & 0x7fffffffU) < 0x7f800000U) {
      input.push_back(std::bit_cast<float>(bits));
    }
  }
  const std::vector<std::uint16_t> codes = encode(input);
  for (std::size_t i = 0; i < input.size(); ++i) {
    const double size = std::abs(double{input[i]});
    std::uint32_t below = 0;  // the last code that is not larger, by bisection
    std::uint32_t above = 0x7f80U;
    while (above - below > 1) {
      const std::uint32_t middle = (below + above) / 2;
      (value_of(middle) <= size ? below : above) = middle;
    }
    const double down = size - value_of(below);
    const double up = value_of(above) - size;
    const std::uint32_t nearest = down < up || (down == up && below % 2 == 0) ? below : above;
    CAPTURE(input[i]);
    REQUIRE((codes[i] & 0x7fffU) == nearest);
    REQUIRE((codes[i] >= 0x8000U) == std::signbit(input[i]));
  }
}

TEST_CASE("bf16: its error is that of rounding to 8 bits") {
  CHECK(relative_error({.kind = CodecKind::kBf16}) ==
        Approx(test::error_of_rounding(8, 7)).epsilon(0.01));
}

}  // namespace
}  // namespace rackrail::plan::bf16_test
