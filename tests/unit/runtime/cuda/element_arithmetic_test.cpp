// The elements' arithmetic as kernels have it, on the host: all codes there are, and many floats,
// against the codecs of plan/codecs/ and what formats are defined to be.
#include "runtime/cuda/element_arithmetic.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "plan/codecs/arithmetic.hpp"

namespace rackrail::runtime::element_arithmetic_test {
namespace {

constexpr unsigned kSeed = 71;

std::vector<std::byte> encode(const std::string& codec, const std::vector<float>& input) {
  const auto descriptor = plan::parse_codec(codec);
  std::vector<std::byte> bytes(static_cast<std::size_t>(
      plan::encoded_size(descriptor, static_cast<std::int64_t>(input.size())).count()));
  plan::make_codec_arithmetic(descriptor)->encode(input, {}, {}, bytes);
  return bytes;
}

std::vector<float> decode(const std::string& codec, const std::vector<std::byte>& bytes,
                          std::size_t elements) {
  std::vector<float> output(elements);
  plan::make_codec_arithmetic(plan::parse_codec(codec))->decode(bytes, output);
  return output;
}

/// Floats of every exponent and sign, with random fractions, and those around each tie of a format
/// with so many bits of fraction; NaNs too.
std::vector<float> floats_for(int fraction_bits) {
  std::mt19937 random(kSeed);
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (int i = 0; i < 2'000; ++i) {
      std::uint32_t fraction = random() & 0x7fffffU;
      if (i % 2 == 0) {
        const auto dropped = static_cast<std::uint32_t>(23 - fraction_bits);
        const std::uint32_t tie = 1U << (dropped - 1);
        fraction = ((fraction >> dropped << dropped) | tie) + random() % 3 - 1;
      }
      const std::uint32_t sign = i % 4 < 2 ? 0 : 0x80000000U;
      values.push_back(element::float_of(sign | exponent << 23U | (fraction & 0x7fffffU)));
    }
  }
  return values;
}

template <typename Format>
void check_against(const std::string& codec, int fraction_bits) {
  CAPTURE(codec, kSeed);
  const std::vector<float> input = floats_for(fraction_bits);
  const std::vector<std::byte> bytes = encode(codec, input);
  for (std::size_t i = 0; i < input.size(); ++i) {
    std::uint16_t expected = 0;
    std::memcpy(&expected, bytes.data() + 2 * i, sizeof expected);
    CAPTURE(element::bits_of(input[i]));
    REQUIRE(Format::code_of(input[i]) == expected);
  }
  std::vector<std::byte> codes(2 * 65'536);
  for (std::uint32_t code = 0; code < 65'536; ++code) {
    const auto narrow = static_cast<std::uint16_t>(code);
    std::memcpy(codes.data() + 2 * std::size_t{code}, &narrow, sizeof narrow);
  }
  const std::vector<float> floats = decode(codec, codes, 65'536);
  for (std::uint32_t code = 0; code < 65'536; ++code) {
    CAPTURE(code);
    const float value = Format::float_of(static_cast<std::uint16_t>(code));
    REQUIRE(element::bits_of(value) == element::bits_of(floats[code]));
  }
}

TEST_CASE("kernel arithmetic: casts are those of the codecs, for all codes and many floats") {
  check_against<element::Half>("fp16", 10);
  check_against<element::Bfloat16>("bf16", 7);
}

TEST_CASE("kernel arithmetic: a code of 8 bits is the float that the codec makes of it") {
  for (std::uint32_t code = 0; code < 256; ++code) {
    CAPTURE(code);
    // One block with the scale 1.
    std::vector<std::byte> bytes(5);
    constexpr float kScale = 1;
    std::memcpy(bytes.data(), &kScale, sizeof kScale);
    bytes[4] = static_cast<std::byte>(code);
    const auto of = [&](const char* codec) { return element::bits_of(decode(codec, bytes, 1)[0]); };
    CHECK(element::bits_of(element::Int8::float_of(code, 0)) == of("int8"));
    const float e4m3 = element::E4m3::float_of(code, 0);
    CHECK((element::bits_of(e4m3) == of("fp8") || (code & 0x7fU) == 0x7fU));
    CHECK(std::isnan(e4m3) == ((code & 0x7fU) == 0x7fU));
    const float e5m2 = element::E5m2::float_of(code, 0);
    CHECK((element::bits_of(e5m2) == of("fp8e5m2") || (code & 0x7fU) > 0x7cU));
    CHECK(std::isnan(e5m2) == ((code & 0x7fU) > 0x7cU));
  }
}

TEST_CASE("kernel arithmetic: rounding to few bits chooses the nearest, of two the even code") {
  // A format with two bits of fraction and the smallest normal number ½: 0, ⅛, ¼, ⅜, ½, ⅝, …
  const auto value = [](std::uint32_t code) {
    return code < 4 ? code / 8.0 : std::ldexp(1 + code % 4 / 4.0, static_cast<int>(code / 4) - 2);
  };
  for (std::uint32_t code = 0; code < 40; ++code) {
    const double low = value(code);
    const double high = value(code + 1);
    for (int part = 0; part <= 64; ++part) {
      const double x = low + (high - low) * part / 64;
      const std::uint32_t nearest = part < 32 || (part == 32 && code % 2 == 0) ? code : code + 1;
      CAPTURE(code, part, x);
      REQUIRE(element::rounded_code<2, -1>(element::bits_of(static_cast<float>(x))) == nearest);
    }
  }
}

TEST_CASE("kernel arithmetic: division by a scale is correctly rounded", "[slow]") {
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<float> exponent(-110, 111);
  std::uniform_real_distribution<float> fraction(1, 2);
  CAPTURE(kSeed);
  for (int i = 0; i < 2'000'000; ++i) {
    // Scales of 20 bits and of far fewer, and quotients near where codes change.
    const std::uint32_t dropped = 4 + random() % 18;
    const std::uint32_t bits = element::bits_of(fraction(random) * std::exp2(exponent(random)));
    const float scale = element::float_of(bits >> dropped << dropped);
    float quotient = fraction(random) * static_cast<float>(1U << random() % 16);
    if (i % 2 == 0) {
      quotient = std::round(quotient * 32) / 32;
    }
    float value = scale * quotient;
    value = element::float_of(element::bits_of(value) + random() % 3 - 1);
    CAPTURE(value, scale);
    REQUIRE(element::BlockDivisor(scale).quotient(value) == value / scale);
  }
}

TEST_CASE("kernel arithmetic: quotients too small for the division are zero in codes") {
  for (const float scale : {0x1p-90F, 0x1.8p-60F, 1.0F, 0x1p90F, 0x1.8p100F}) {
    const element::BlockDivisor divisor(scale);
    for (const float value : {0x1p-126F, 0x1p-149F, -0x1.8p-127F, 0.0F, -0.0F}) {
      CAPTURE(scale, value);
      CHECK(element::E4m3::code_of(value, divisor, 0, 0) == (std::signbit(value) ? 0x80U : 0U));
    }
  }
}

TEST_CASE("kernel arithmetic: codes and scales of blocks are those of the codecs") {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-145, 120);
  CAPTURE(kSeed);
  for (int round = 0; round < 2'000; ++round) {
    const float size = std::exp2(exponent(random));
    std::vector<float> block(64);
    std::uint32_t largest = 0;
    for (float& value : block) {
      value = normal(random) * size;
      largest = std::max(largest, element::magnitude_of(value));
    }
    CAPTURE(round, size);
    const auto scale_in = [](const std::vector<std::byte>& bytes) {
      float scale = 0;
      std::memcpy(&scale, bytes.data(), sizeof scale);
      return scale;
    };
    const std::vector<std::byte> int8 = encode("int8:block=64", block);
    const std::vector<std::byte> fp8 = encode("fp8:block=64", block);
    const std::vector<std::byte> e5m2 = encode("fp8e5m2:block=64", block);
    const float e5m2_scale = element::block_scale<element::E5m2>(largest);
    REQUIRE(e5m2_scale == scale_in(e5m2));
    const float int8_scale = element::block_scale<element::Int8>(largest);
    const float fp8_scale = element::block_scale<element::E4m3>(largest);
    REQUIRE(int8_scale == scale_in(int8));
    REQUIRE(fp8_scale == scale_in(fp8));
    for (std::uint32_t i = 0; i < block.size(); ++i) {
      CAPTURE(i, block[i]);
      const std::uint64_t number = element::random_of_four(0, i - i % 4);
      if (int8_scale > 0) {
        const element::Int8::Factor factor(int8_scale);
        REQUIRE(element::Int8::code_of(block[i], factor, number, i % 4) ==
                static_cast<std::uint32_t>(int8[4 + i]));
      }
      if (e5m2_scale > 0) {
        const element::E5m2::Factor factor(e5m2_scale);
        REQUIRE(element::E5m2::code_of(block[i], factor, 0, 0) ==
                static_cast<std::uint32_t>(e5m2[4 + i]));
      }
      if (fp8_scale > 0) {
        const element::E4m3::Factor factor(fp8_scale);
        REQUIRE(element::E4m3::code_of(block[i], factor, 0, 0) ==
                static_cast<std::uint32_t>(fp8[4 + i]));
      }
    }
  }
  CHECK(std::isnan(element::block_scale<element::Int8>(0x7f800000U)));
  CHECK(std::isnan(element::block_scale<element::E4m3>(0x7fc00000U)));
}

TEST_CASE("kernel arithmetic: a code times its scale is exact, so that it may be fused", "[slow]") {
  std::mt19937 random(kSeed);
  std::uniform_real_distribution<float> exponent(-149, 127);
  CAPTURE(kSeed);
  for (int i = 0; i < 300'000; ++i) {
    const float largest = std::exp2(exponent(random));
    const float sum = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0F : -1.0F);
    const std::uint32_t code = random() % 255;
    const auto check = [&](float number, float scale) {
      CAPTURE(largest, code, number, scale, sum);
      REQUIRE(double{number} * scale == double{number * scale});
      REQUIRE(element::bits_of(std::fma(number, scale, sum)) ==
              element::bits_of(number * scale + sum));
    };
    if (code != 0x80U) {  // −128 is no code
      check(element::Int8::float_of(code, 0), element::Int8::scale_of(largest));
    }
    if ((code & 0x7fU) < 0x7cU) {
      check(element::E5m2::float_of(code, 0), element::E5m2::scale_of(largest));
    }
    if ((code & 0x7fU) != 0x7fU) {
      check(element::E4m3::float_of(code, 0), element::E4m3::scale_of(largest));
    }
  }
}

TEST_CASE("kernel arithmetic: integers are the floor or the ceiling, as often as is right") {
  // Over all of a number's 2¹⁵ values, the mean of the codes is the quotient to within 2⁻¹⁶.
  const element::Int8::Factor factor(0.75F);
  for (const float quotient : {0.0F, 0.3F, -0.3F, 17.0F, -126.99F, 126.5F, 1e-3F, -1e-3F}) {
    CAPTURE(quotient);
    for (const unsigned which : {0U, 1U, 2U, 3U}) {
      double sum = 0;
      for (std::uint64_t number = 0; number < 0x8000; ++number) {
        const std::uint32_t code =
            element::Int8::code_of(0.75F * quotient, factor, number << (16 * which), which);
        const auto integer = static_cast<std::int8_t>(code);
        REQUIRE((integer == std::floor(quotient) || integer == std::ceil(quotient)));
        sum += integer;
      }
      CHECK(std::abs(sum / 0x8000 - quotient) <= 0x1.01p-16);
    }
  }
  CHECK(element::Int8::code_of(0.75F * 127.001F, factor, 0x7fff, 0) == 127);
  CHECK(element::Int8::code_of(0.75F * -127.001F, factor, 0, 0) == 0x81);
}

}  // namespace
}  // namespace rackrail::runtime::element_arithmetic_test
