#include "runtime/residual_limit.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace rackrail::runtime::residual_limit_test {

TEST_CASE("the norm is that of all values, and infinite where one is") {
  std::vector<float> values(19, 2);
  CHECK(norm_of(values) == Approx(2 * std::sqrt(19.0)));
  CHECK(norm_of({}) == 0);
  values[17] = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(norm_of(values)));
  values[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(norm_of(values)));
}

TEST_CASE("gradients of about the usual size leave what they leave") {
  std::vector<float> usual;
  for (const double norm : {1.0, 3.0, 0.1, 9.0, 2.0}) {
    std::vector<float> residual{5, -5};
    limit_residual(usual, 0, norm, residual);
    CHECK(residual == std::vector<float>{5, -5});
  }
}

TEST_CASE("a gradient 10,000 times the usual one leaves what a usual one would have left") {
  std::vector<float> usual;
  std::vector<float> residual{1, 2};
  limit_residual(usual, 1, 2, residual);
  residual = {10'000, -20'000};
  limit_residual(usual, 1, 20'000, residual);
  CHECK(residual[0] == Approx(1));
  CHECK(residual[1] == Approx(-2));
  // Other slices have their own usual norms.
  residual = {10'000, -20'000};
  limit_residual(usual, 0, 20'000, residual);
  CHECK(residual == std::vector<float>{10'000, -20'000});
}

TEST_CASE(
    "a second unusual gradient leaves no more than the first, and idle steps change nothing") {
  std::vector<float> usual;
  std::vector<float> residual{1};
  limit_residual(usual, 0, 2, residual);
  for (int step = 0; step < 3; ++step) {
    residual = {1'000};
    limit_residual(usual, 0, 20'000, residual);
    CHECK(residual[0] < 1);
  }
  for (int step = 0; step < 100; ++step) {  // as a slice of an expert that no sample goes to
    residual = {1};
    limit_residual(usual, 0, 0, residual);
  }
  residual = {1};
  limit_residual(usual, 0, 5, residual);
  CHECK(residual[0] == 1);
}

TEST_CASE("norms that stay large are usual after some tens of steps") {
  std::vector<float> usual;
  std::vector<float> residual{1};
  limit_residual(usual, 0, 1, residual);
  int limited = 0;
  for (int step = 0; step < 100; ++step) {
    residual = {1};
    limit_residual(usual, 0, 1'000, residual);
    limited += residual[0] < 1 ? 1 : 0;
  }
  CHECK(limited > 10);
  CHECK(limited < 40);
}

TEST_CASE("a gradient that is not finite leaves nothing") {
  std::vector<float> usual;
  for (const double norm :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    std::vector<float> residual{std::numeric_limits<float>::quiet_NaN(), 1};
    limit_residual(usual, 0, norm, residual);
    CHECK(residual == std::vector<float>{0, 0});
  }
}

}  // namespace rackrail::runtime::residual_limit_test
