#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "plan/codec.hpp"
#include "plan/codecs/arithmetic.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/unit/plan/codecs/sample.hpp"

namespace rackrail::plan::top_k_test {
namespace {

using test::norm;
using test::normal_values;

Codec top_k(double density) { return {.kind = CodecKind::kTopK, .density = density}; }

TEST_CASE("the error of top-k is the energy that it leaves out") {
  const std::uint64_t seed = 13;
  INFO("seed " << seed);
  auto values = normal_values(1 << 18, 1, seed);
  std::sort(values.begin(), values.end(),
            [](double a, double b) { return std::abs(a) > std::abs(b); });
  for (const double density : {0.001, 0.01, 0.1, 0.5}) {
    CAPTURE(density);
    const auto kept = static_cast<std::ptrdiff_t>(density * static_cast<double>(values.size()));
    const std::vector<double> rest(values.begin() + kept, values.end());
    CHECK(relative_error(top_k(density)) == Approx(norm(rest) / norm(values)).epsilon(0.01));
  }
  CHECK(relative_error(top_k(1)) == 0);
  CHECK(relative_error(Codec{}) == 0);
}

/// Indices that have to be kept, by sorting: larger magnitudes first, then lower indices.
std::vector<std::uint32_t> largest(const std::vector<float>& values, std::size_t kept) {
  std::vector<std::uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::abs(values[a]) > std::abs(values[b]);
  });
  order.resize(kept);
  std::sort(order.begin(), order.end());
  return order;
}

/// Encodes with a residual of zeros and compares with largest(), on all instruction sets.
void check_selection(const std::vector<float>& values, double density) {
  const Codec codec = top_k(density);
  const auto kept =
      static_cast<std::size_t>(kept_elements(codec, static_cast<std::int64_t>(values.size())));
  const std::vector<std::uint32_t> expected = largest(values, kept);
  std::vector<float> expected_residual = values;
  for (const std::uint32_t index : expected) {
    expected_residual[index] = 0;
  }
  for (const std::int64_t set : rackrail::test::instruction_sets()) {
    const rackrail::test::UseInstructionSet use(set);
    std::vector<float> residual(values.size(), 0);
    std::vector<std::byte> encoded(8 * kept);
    make_codec_arithmetic(codec)->encode(values, residual, {}, encoded);
    std::vector<std::uint32_t> indices(kept);
    std::vector<float> sent(kept);
    std::memcpy(indices.data(), encoded.data(), 4 * kept);
    std::memcpy(sent.data(), encoded.data() + 4 * kept, 4 * kept);
    CHECK(indices == expected);
    for (std::size_t k = 0; k < kept; ++k) {
      REQUIRE(sent[k] == values[indices[k]]);
    }
    CHECK(residual == expected_residual);
  }
}

TEST_CASE("a sample of the elements changes how fast the kept are found, never which they are") {
  const std::uint64_t seed = 29;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(200'000);
  for (float& value : values) {
    value = normal(random);
  }
  for (const double density : {0.0001, 0.001, 0.01, 0.12, 0.2}) {
    CAPTURE(density);
    check_selection(values, density);
  }
  SECTION("what a sample takes may be larger than all else") {
    for (std::size_t stride = 58; stride <= 64; ++stride) {
      CAPTURE(stride);
      std::vector<float> misleading = values;
      for (std::size_t i = 0; i < values.size(); i += stride) {
        misleading[i] *= 1000;
      }
      check_selection(misleading, 0.01);
    }
  }
  SECTION("or smaller") {
    for (std::size_t stride = 58; stride <= 64; ++stride) {
      CAPTURE(stride);
      std::vector<float> misleading = values;
      for (std::size_t i = 0; i < values.size(); i += stride) {
        misleading[i] *= 0.001F;
      }
      check_selection(misleading, 0.01);
    }
  }
  SECTION("most elements are equal") {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = i % 400 == 7 ? values[i] : 0.5F;
    }
    check_selection(values, 0.01);
    check_selection(std::vector<float>(values.size(), 0.0F), 0.001);
  }
}

}  // namespace
}  // namespace rackrail::plan::top_k_test
