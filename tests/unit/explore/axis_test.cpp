#include "explore/axis.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "base/error.hpp"

namespace rackrail::explore::axis_test {
namespace {

Axis axis_of(const std::string& yaml, bool for_random = false) {
  return read_axis("plan.x", ConfigValue::parse("test.yaml", yaml), for_random);
}

TEST_CASE("values are what the file says") {
  const std::vector<std::string> values{"10 Gbit/s", "20 Gbit/s"};
  CHECK(axis_of("[10 Gbit/s, 20 Gbit/s]").values == values);
  CHECK(axis_of("{values: [10 Gbit/s, 20 Gbit/s]}").values == values);
}

TEST_CASE("a range is divided by difference or by ratio, ends included") {
  CHECK(axis_of("{from: 1 us, to: 9 us, steps: 5}").values ==
        std::vector<std::string>{"1 us", "3 us", "5 us", "7 us", "9 us"});
  CHECK(axis_of("{from: 10Gbps, to: 160Gbps, steps: 5, scale: log}").values ==
        std::vector<std::string>{"10Gbps", "20Gbps", "40Gbps", "80Gbps", "160Gbps"});
  CHECK(axis_of("{from: 0, to: 1, steps: 3}").values == std::vector<std::string>{"0", "0.5", "1"});
  // Rounded, and where that makes neighbours equal, once.
  CHECK(axis_of("{from: 1, to: 4, steps: 7, whole: true}").values ==
        std::vector<std::string>{"1", "2", "3", "4"});
  CHECK(axis_of("{from: 1 B, to: 4000000000001 B, steps: 2}").values ==
        std::vector<std::string>{"1 B", "4000000000001 B"});
}

TEST_CASE("what is no axis is refused at its place") {
  const auto [yaml, field] = GENERATE(table<std::string, std::string>({
      {"{}", "from"},
      {"[]", ""},
      {"[1, 1]", "[1]"},
      {"[1, [2]]", "[1]"},
      {"7", ""},
      {"{values: [1], steps: 2}", "steps"},
      {"{from: 1, to: 2}", "steps"},
      {"{from: 1, to: 2, steps: 1}", "steps"},
      {"{from: 1, to: 2, steps: 2, scale: cubic}", "scale"},
      {"{from: 0, to: 2, steps: 2, scale: log}", "from"},
      {"{from: 2, to: 1, steps: 2}", "to"},
      {"{from: 1 us, to: 2 ms, steps: 2}", "to"},
      {"{from: fast, to: 2, steps: 2}", "from"},
      {"{from: nan, to: 2, steps: 2}", "from"},
      {"{from: 1, to: 2, steps: 2, step: 3}", "step"},
  }));
  INFO(yaml);
  try {
    axis_of(yaml);
    FAIL("it was read");
  } catch (const ConfigError& e) {
    CHECK(e.context().file == "test.yaml");
    const std::string whole = e.context().where + " " + e.context().found;
    CHECK(whole.find(field) != std::string::npos);
    CHECK_FALSE(e.context().expected.empty());
  }
}

TEST_CASE("draws are uniform over the values") {
  const Axis axis = axis_of("[a, b, c, d]", true);
  constexpr int kDraws = 4000;
  const std::uint64_t seed = GENERATE(0U, 1U, 77U);
  INFO("seed " << seed);
  std::map<std::string, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[axis.draw(seed, static_cast<std::uint64_t>(i))];
  }
  // Chi-squared with 3 degrees of freedom: above 16.3 once in a thousand.
  double chi = 0;
  for (const char* value : {"a", "b", "c", "d"}) {
    chi += std::pow(counts[value] - kDraws / 4.0, 2) / (kDraws / 4.0);
  }
  CHECK(chi < 16.3);
}

TEST_CASE("draws of a logarithmic range are uniform by ratio") {
  const Axis axis = axis_of("{from: 1, to: 10000, scale: log}", true);
  REQUIRE(axis.range.has_value());
  constexpr int kDraws = 4000;
  int below = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = std::stod(axis.draw(5, static_cast<std::uint64_t>(i)));
    CHECK(value >= 1);
    CHECK(value <= 10000);
    below += value < 100 ? 1 : 0;
  }
  // Half of them, give or take four standard deviations.
  CHECK(std::abs(below - kDraws / 2) < 4 * std::sqrt(kDraws) / 2);
}

TEST_CASE("axes of one search are drawn independently, and the seed matters") {
  Axis a = axis_of("[0, 1]", true);
  Axis b = a;
  b.path = "plan.y";
  int equal = 0;
  int same_seed = 0;
  constexpr int kDraws = 1000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    equal += a.draw(1, i) == b.draw(1, i) ? 1 : 0;
    same_seed += a.draw(1, i) == a.draw(2, i) ? 1 : 0;
  }
  const double four_deviations = 4 * std::sqrt(kDraws) / 2;
  CHECK(std::abs(equal - kDraws / 2) < four_deviations);
  CHECK(std::abs(same_seed - kDraws / 2) < four_deviations);
}

}  // namespace
}  // namespace rackrail::explore::axis_test
