#include "cli/comparison.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace rackrail::cli::comparison_test {
namespace {

TEST_CASE("the mean is of factors, as half and double are equally far off") {
  const ErrorSummary summary = summarise({-0.5, 1.0, 0.0});
  CHECK(1 + summary.mean == Approx(std::cbrt(2.0 * 2.0)));
  CHECK(summary.median == Approx(0.5));
  CHECK(summary.worst == 1.0);
}

TEST_CASE("a mean factor beyond the worst error is said as a factor") {
  const ErrorSummary summary = summarise({-0.9, -0.9});
  CHECK(summary.mean == Approx(9));
  CHECK(summary.worst == -0.9);
  CHECK(summary_text(summary) ==
        "off by a factor of 10.000 in the geometric mean; error: median 90.0 %, worst -90.0 %");
}

TEST_CASE("the median of an even number lies between the two in the middle") {
  CHECK(summarise({0.01, -0.02, 0.04, 0.08}).median == Approx(0.03));
}

}  // namespace
}  // namespace rackrail::cli::comparison_test
