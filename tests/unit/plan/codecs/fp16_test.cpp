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

TEST_CASE("the error of FP16 is that of rounding to 11 bits") {
  const std::uint64_t seed = 7;
  INFO("seed " << seed);
  double sum = 0;
  constexpr int kScales = 16;
  for (int i = 0; i < kScales; ++i) {
    // Deviations over an octave: the error depends on where they lie between powers of two.
    const auto values = normal_values(1 << 14, std::exp2(static_cast<double>(i) / kScales), seed);
    std::vector<double> error;
    for (const double v : values) {
      int exponent = 0;
      std::frexp(v, &exponent);
      const double unit = std::ldexp(1.0, exponent - 11);
      error.push_back(std::nearbyint(v / unit) * unit - v);
    }
    sum += std::pow(norm(error) / norm(values), 2);
  }
  CHECK(relative_error(Codec{.kind = CodecKind::kFp16}) ==
        Approx(std::sqrt(sum / kScales)).epsilon(0.01));
  CHECK(relative_error(Codec{.kind = CodecKind::kFp16}) == Approx(2.1e-4).epsilon(0.02));
}

}  // namespace
}  // namespace rackrail::plan
