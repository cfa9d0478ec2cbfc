#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "plan/codec.hpp"
#include "tests/unit/plan/codecs/sample.hpp"

namespace rackrail::plan {
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

}  // namespace
}  // namespace rackrail::plan
