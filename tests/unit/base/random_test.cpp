#include "base/random.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

namespace rackrail::random_test {

using namespace rackrail;

TEST_CASE("mix64 is the output function of SplitMix64") {
  // The first three numbers of the reference generator with seed 1234567.
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  std::uint64_t state = 1234567;
  CHECK(mix64(state) == 6457827717110365317ULL);
  CHECK(mix64(state += kStep) == 3203168211198807973ULL);
  CHECK(mix64(state += kStep) == 9817491932198370423ULL);
}

TEST_CASE("a sequence is that of SplitMix64") {
  CHECK(random_sequence(1234567, 0) == 6457827717110365317ULL);
  CHECK(random_sequence(1234567, 1) == 3203168211198807973ULL);
  CHECK(random_sequence(1234567, 2) == 9817491932198370423ULL);
}

TEST_CASE("numbers depend on key and counter only, and differ between them") {
  CHECK(random_bits(1, 2) == random_bits(1, 2));
  CHECK(random_bits(1, 2) != random_bits(2, 1));
  CHECK(random_bits(1, 2) != random_bits(1, 3));
}

TEST_CASE("uniform numbers stay in [0, 1) with the mean and variance they should have") {
  constexpr int kCount = 100'000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = random_unit(42, static_cast<std::uint64_t>(i));
    const float f = random_unit_float(42, static_cast<std::uint64_t>(i));
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    REQUIRE(f >= 0);
    REQUIRE(f < 1);
    sum += u;
    squares += u * u;
  }
  // Standard errors are 0.0009 and 0.0009.
  CHECK(std::fabs(sum / kCount - 0.5) < 0.005);
  CHECK(std::fabs(squares / kCount - 1.0 / 3) < 0.005);
}

}  // namespace rackrail::random_test
