#include "runtime/trainer/learning_rate.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>

namespace rackrail::trainer::learning_rate_test {
namespace {

TEST_CASE("Warm-up rises linearly to the peak") {
  const LearningRate rate{0.4, 4, 100, Decay::kConstant};
  CHECK(rate.at(0) == Approx(0.1));
  CHECK(rate.at(1) == Approx(0.2));
  CHECK(rate.at(3) == Approx(0.4));
  CHECK(rate.at(4) == 0.4);
  CHECK(rate.at(99) == 0.4);
  CHECK(LearningRate{0.4, 0, 100, Decay::kConstant}.at(0) == 0.4);
}

TEST_CASE("The cosine agrees with the library's to the last digits") {
  const LearningRate rate{0.3, 10, 210, Decay::kCosine};
  for (std::int64_t step = 10; step <= 210; ++step) {
    const double progress = static_cast<double>(step - 10) / 200;
    CHECK(rate.at(step) ==
          Approx(0.15 * (1 + std::cos(std::numbers::pi * progress))).margin(1e-16));
  }
  CHECK(rate.at(10) == Approx(0.3));
  CHECK(rate.at(110) == Approx(0.15));
  CHECK(rate.at(210) == Approx(0.0).margin(1e-16));
  CHECK(rate.at(1000) == rate.at(210));  // beyond the end
}

TEST_CASE("The peak grows with the global batch") {
  CHECK(scaled_learning_rate(0.1, 256, 256) == 0.1);
  CHECK(scaled_learning_rate(0.1, 256, 1024) == Approx(0.4));
  CHECK(scaled_learning_rate(0.1, 256, 64) == Approx(0.025));
}

}  // namespace
}  // namespace rackrail::trainer::learning_rate_test
