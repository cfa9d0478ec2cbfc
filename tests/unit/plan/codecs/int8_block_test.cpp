#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "plan/codec.hpp"
#include "tests/unit/plan/codecs/sample.hpp"

namespace rackrail::plan::int8_block_test {
namespace {

using test::norm;
using test::normal_values;

Codec int8(std::uint32_t block) { return {.kind = CodecKind::kInt8Block, .block = block}; }

TEST_CASE("the error of 8-bit blocks is that of stochastic rounding to max/127") {
  const std::uint64_t seed = 11;
  for (const std::uint32_t block : {4U, 32U, 256U, 2048U}) {
    CAPTURE(seed, block);
    const auto values = normal_values(1 << 18, 1, seed + block);
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(0, 1);
    std::vector<double> error;
    for (std::size_t begin = 0; begin < values.size(); begin += block) {
      double largest = 0;
      for (std::size_t i = begin; i < begin + block; ++i) {
        largest = std::max(largest, std::abs(values[i]));
      }
      const double step = largest / 127;
      for (std::size_t i = begin; i < begin + block; ++i) {
        // The largest element is a whole number of steps by definition, whatever the division says.
        const double steps =
            std::abs(values[i]) == largest ? std::copysign(127, values[i]) : values[i] / step;
        error.push_back(std::floor(steps + uniform(random)) * step - values[i]);
      }
    }
    CHECK(relative_error(int8(block)) == Approx(norm(error) / norm(values)).epsilon(0.01));
  }
  CHECK(relative_error(int8(1)) == Approx(0).margin(1e-12));
}

}  // namespace
}  // namespace rackrail::plan::int8_block_test
