#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "plan/codecs/arithmetic.hpp"
#include "tests/unit/plan/codecs/sample.hpp"

namespace rackrail::plan {
namespace {

using test::norm;
using test::normal_values;

Codec e5m2(std::uint32_t block) { return {.kind = CodecKind::kFp8E5m2Block, .block = block}; }

std::vector<std::byte> encode(const Codec& codec, const std::vector<float>& input) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(
      encoded_size(codec, static_cast<std::int64_t>(input.size())).count()));
  make_codec_arithmetic(codec)->encode(input, {}, {}, bytes);
  return bytes;
}

std::vector<float> round_trip(const Codec& codec, const std::vector<float>& input) {
  std::vector<float> output(input.size());
  make_codec_arithmetic(codec)->decode(encode(codec, input), output);
  return output;
}

/// What the OFP8 specification says a magnitude of seven bits below 0x7c stands for.
double value_of(std::uint32_t magnitude) {
  const int exponent = static_cast<int>(magnitude >> 2U);
  const double mantissa = static_cast<double>(magnitude & 3U) / 4;
  return exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1 + mantissa, exponent - 15);
}

double relative_difference(const std::vector<float>& output, const std::vector<float>& input) {
  std::vector<double> error;
  std::vector<double> exact(input.begin(), input.end());
  for (std::size_t i = 0; i < input.size(); ++i) {
    error.push_back(double{output[i]} - input[i]);
  }
  return norm(error) / norm(exact);
}

std::vector<float> as_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

TEST_CASE("fp8e5m2: the numbers of the specification") {
  CHECK(value_of(0x7b) == 57344);
  CHECK(value_of(0x04) == 0x1p-14);
  CHECK(value_of(0x03) == 0.75 * 0x1p-14);
  CHECK(value_of(0x01) == 0x1p-16);
}

TEST_CASE("fp8e5m2: the nearest number is chosen, of two the one with an even code") {
  const unsigned seed = 29;
  CAPTURE(seed);
  std::mt19937 random(seed);
  // 57344 in the block makes the scale 1.
  std::vector<float> input{57344};
  for (std::uint32_t code = 0; code < 0x7b; ++code) {
    const double middle = (value_of(code) + value_of(code + 1)) / 2;
    for (const double x :
         {value_of(code), middle, std::nextafter(static_cast<float>(middle), 0.0F) * 1.0,
          std::nextafter(static_cast<float>(middle), 1e5F) * 1.0}) {
      input.push_back(static_cast<float>(x));
      input.push_back(static_cast<float>(-x));
    }
  }
  std::uniform_real_distribution<float> exponent(-20, 15.8F);
  for (int i = 0; i < 20'000; ++i) {
    input.push_back(std::exp2(exponent(random)) * (i % 2 == 0 ? 1.0F : -1.0F));
  }
  const Codec codec = e5m2(1U << 20U);
  const std::vector<std::byte> bytes = encode(codec, input);
  float scale = 0;
  std::memcpy(&scale, bytes.data(), sizeof scale);
  REQUIRE(scale == 1);
  const std::vector<float> output = round_trip(codec, input);
  for (std::size_t i = 0; i < input.size(); ++i) {
    const double size = std::abs(double{input[i]});
    std::uint32_t nearest = 0;
    for (std::uint32_t code = 1; code < 0x7c; ++code) {
      const double gain = std::abs(size - value_of(nearest)) - std::abs(size - value_of(code));
      if (gain > 0 || (gain == 0 && code % 2 == 0)) {
        nearest = code;
      }
    }
    CAPTURE(input[i]);
    REQUIRE(static_cast<std::uint32_t>(bytes[4 + i]) ==
            (nearest | (std::signbit(input[i]) ? 0x80U : 0U)));
    REQUIRE(double{output[i]} == std::copysign(value_of(nearest), input[i]));
  }
}

TEST_CASE("fp8e5m2: the largest of a block is kept to 20 bits, whatever its size") {
  const unsigned seed = 31;
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> exponent(-97, 127);
  for (int i = 0; i < 10'000; ++i) {
    const float largest = std::exp2(exponent(random));
    const float output = round_trip(e5m2(1), {largest})[0];
    CAPTURE(largest);
    REQUIRE(output <= largest);
    REQUIRE(output >= largest * (1 - 0x1p-19F));
  }
  CHECK(round_trip(e5m2(1), {1e-30F})[0] == 0);
}

TEST_CASE("fp8e5m2: products of codes and scales lose no bits, down to the smallest block") {
  const float largest = 57344 * 0x1p-114F;
  std::vector<float> input{largest};
  for (std::uint32_t code = 0; code < 0x7c; ++code) {
    input.push_back(static_cast<float>(value_of(code) / 57344 * double{largest}));
  }
  const std::vector<float> once = round_trip(e5m2(256), input);
  const float scale = static_cast<float>(once[0] / 57344);
  for (std::uint32_t code = 0; code < 0x7c; ++code) {
    CAPTURE(code);
    CHECK(double{once[1 + code]} == value_of(code) * scale);
  }
  CHECK(round_trip(e5m2(256), once) == once);
}

TEST_CASE("fp8e5m2: codes that are no finite number decode to none") {
  for (const std::uint32_t code : {0x7cU, 0x7dU, 0x7fU, 0xfcU, 0xffU}) {
    CAPTURE(code);
    std::vector<std::byte> bytes(5);
    const float scale = 2;
    std::memcpy(bytes.data(), &scale, sizeof scale);
    bytes[4] = static_cast<std::byte>(code);
    float output = 0;
    make_codec_arithmetic(e5m2(1))->decode(bytes, {&output, 1});
    CHECK(std::isinf(output) == ((code & 0x7fU) == 0x7cU));
    CHECK(std::isnan(output) == ((code & 0x7fU) != 0x7cU));
    CHECK(std::signbit(output) == ((code & 0x80U) != 0));
  }
}

TEST_CASE("fp8e5m2: its error model is what encoding normal values gives") {
  for (const std::uint32_t block : {2U, 8U, 32U, 256U, 2048U, 65536U}) {
    const std::uint64_t seed = 37 + block;
    CAPTURE(seed, block);
    const auto input = as_floats(normal_values(1 << 18, 1e-3, seed));
    CHECK(relative_error(e5m2(block)) ==
          Approx(relative_difference(round_trip(e5m2(block), input), input)).epsilon(0.02));
  }
  CHECK(relative_error(e5m2(1)) == Approx(0).margin(1e-12));
}

}  // namespace
}  // namespace rackrail::plan
