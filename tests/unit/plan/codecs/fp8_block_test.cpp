#include "tests/unit/plan/codecs/float8_checks.hpp"

namespace rackrail::plan::fp8_block_test {
namespace {

constexpr test::Float8 kE4m3{.kind = CodecKind::kFp8Block,
                             .mantissa_bits = 3,
                             .bias = 7,
                             .largest_code = 0x7e,
                             .smallest_octave = -110};

TEST_CASE("fp8: the numbers of the specification") {
  CHECK(kE4m3.value_of(0x7e) == 448);
  CHECK(kE4m3.value_of(0x08) == 0x1p-6);
  CHECK(kE4m3.value_of(0x07) == 0.875 * 0x1p-6);
  CHECK(kE4m3.value_of(0x01) == 0x1p-9);
}

TEST_CASE("fp8: the nearest number is chosen, of two the one with an even code") {
  test::check_nearest(kE4m3, 29);
}

TEST_CASE("fp8: the largest of a block is kept to 20 bits, whatever its size") {
  test::check_largest(kE4m3, 31);
}

TEST_CASE("fp8: its error model is what encoding normal values gives") {
  test::check_error_model(kE4m3);
}

TEST_CASE("fp8: with an outlier in each block it is far nearer than 8-bit integers") {
  const std::uint64_t seed = 41;
  INFO("seed " << seed);
  auto input = test::as_floats(test::normal_values(1 << 16, 1, seed));
  for (std::size_t i = 0; i < input.size(); i += 256) {
    input[i] = 1'000;
  }
  const auto error_of = [&](const Codec& codec) {
    return test::relative_difference(test::round_trip(codec, input), input);
  };
  CHECK(10 * error_of(kE4m3.codec(256)) < error_of({.kind = CodecKind::kInt8Block}));
}

}  // namespace
}  // namespace rackrail::plan::fp8_block_test
