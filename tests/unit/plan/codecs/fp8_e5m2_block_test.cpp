#include "tests/unit/plan/codecs/float8_checks.hpp"

namespace rackrail::plan::fp8_e5m2_block_test {
namespace {

constexpr test::Float8 kE5m2{.kind = CodecKind::kFp8E5m2Block,
                             .mantissa_bits = 2,
                             .bias = 15,
                             .largest_code = 0x7b,
                             .smallest_octave = -97};

TEST_CASE("fp8e5m2: the numbers of the specification") {
  CHECK(kE5m2.value_of(0x7b) == 57344);
  CHECK(kE5m2.value_of(0x04) == 0x1p-14);
  CHECK(kE5m2.value_of(0x03) == 0.75 * 0x1p-14);
  CHECK(kE5m2.value_of(0x01) == 0x1p-16);
}

TEST_CASE("fp8e5m2: the nearest number is chosen, of two the one with an even code") {
  test::check_nearest(kE5m2, 29);
}

TEST_CASE("fp8e5m2: the largest of a block is kept to 20 bits, whatever its size") {
  test::check_largest(kE5m2, 31);
}

TEST_CASE("fp8e5m2: products of codes and scales lose no bits, down to the smallest block") {
  const float largest = 57344 * 0x1.0p-114F;
  std::vector<float> input{largest};
  for (std::uint32_t code = 0; code <= kE5m2.largest_code; ++code) {
    input.push_back(static_cast<float>(kE5m2.value_of(code) / 57344 * double{largest}));
  }
  const Codec codec = kE5m2.codec(256);
  const std::vector<float> once = test::round_trip(codec, input);
  const float scale = once[0] / 57344;
  for (std::uint32_t code = 0; code <= kE5m2.largest_code; ++code) {
    CAPTURE(code);
    CHECK(double{once[1 + code]} == kE5m2.value_of(code) * scale);
  }
  CHECK(test::round_trip(codec, once) == once);
}

TEST_CASE("fp8e5m2: codes that are no finite number decode to none") {
  for (const std::uint32_t code : {0x7cU, 0x7dU, 0x7fU, 0xfcU, 0xffU}) {
    CAPTURE(code);
    std::vector<std::byte> bytes(5);
    const float scale = 2;
    std::memcpy(bytes.data(), &scale, sizeof scale);
    bytes[4] = static_cast<std::byte>(code);
    float output = 0;
    make_codec_arithmetic(kE5m2.codec(1))->decode(bytes, {&output, 1});
    CHECK(std::isinf(output) == ((code & 0x7fU) == 0x7cU));
    CHECK(std::isnan(output) == ((code & 0x7fU) != 0x7cU));
    CHECK(std::signbit(output) == ((code & 0x80U) != 0));
  }
}

TEST_CASE("fp8e5m2: its error model is what encoding normal values gives") {
  test::check_error_model(kE5m2);
}

}  // namespace
}  // namespace rackrail::plan::fp8_e5m2_block_test
