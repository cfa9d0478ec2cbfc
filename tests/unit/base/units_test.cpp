#include "base/units.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/error.hpp"

namespace rackrail::units_test {

using namespace rackrail;

namespace {
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
}

TEST_CASE("literals mean what they say") {
  CHECK((64_MiB).count() == 67'108'864);
  CHECK((1_GiB).count() == 1'073'741'824);
  CHECK((400_Gbps).bytes_per_second() == 50'000'000'000);
  CHECK((1_GBps).bytes_per_second() == 1'000'000'000);
  CHECK((2_us).picoseconds() == 2'000'000);
  CHECK((1_s).picoseconds() == 1'000'000'000'000);
}

TEST_CASE("time of a transfer is rounded up to a picosecond") {
  CHECK(Bytes(1) / Bandwidth(1'000'000'000'000) == Duration(1));
  CHECK(Bytes(1) / Bandwidth(3'000'000'000'000) == Duration(1));
  CHECK(Bytes(10) / Bandwidth(3'000'000'000'000) == Duration(4));
  CHECK(Bytes(0) / Bandwidth(5) == Duration(0));
  CHECK(1_GiB / Bandwidth(1'073'741'824) == 1_s);
}

TEST_CASE("bytes in a time are rounded down") {
  CHECK(Bandwidth(3) * Duration(500'000'000'000) == Bytes(1));
  CHECK(400_Gbps * 1_ms == Bytes(50'000'000));
}

TEST_CASE("size and rate are exact where a double is not") {
  const Bytes size((1LL << 60) + 1);
  CHECK(size / Bandwidth(1'000'000'000'000) == Duration((1LL << 60) + 1));
}

TEST_CASE("arithmetic that leaves the range throws") {
  CHECK_THROWS_AS(Bytes(kMost) + Bytes(1), OverflowError);
  CHECK_THROWS_AS(Bytes(-kMost) - Bytes(2), OverflowError);
  CHECK_THROWS_AS(Bytes(kMost) * 2, OverflowError);
  CHECK_THROWS_AS(Duration(kMost) + Duration(1), OverflowError);
  CHECK_THROWS_AS(Duration(kMost) * 2, OverflowError);
  CHECK_THROWS_AS(Bandwidth(kMost) + Bandwidth(1), OverflowError);
  CHECK_THROWS_AS(Bytes(kMost) / Bandwidth(1), OverflowError);
  CHECK_THROWS_AS(Bandwidth(kMost) * Duration(kMost), OverflowError);
  CHECK_THROWS_AS(Duration::from_seconds(1e8), OverflowError);
  CHECK_THROWS_AS(Duration::from_seconds(std::numeric_limits<double>::quiet_NaN()), OverflowError);
  CHECK_THROWS_AS(scaled(Duration(kMost), 1.5), OverflowError);
}

TEST_CASE("no time is needed by no rate: that is an error") {
  CHECK_THROWS_AS(Bytes(1) / Bandwidth(0), OverflowError);
  CHECK_THROWS_AS(Bytes(1) / Bandwidth(-1), OverflowError);
}

TEST_CASE("seconds round to the nearest picosecond") {
  CHECK(Duration::from_seconds(1e-12) == Duration(1));
  CHECK(Duration::from_seconds(1.4e-12) == Duration(1));
  CHECK(Duration::from_seconds(1.6e-12) == Duration(2));
  CHECK(Duration::from_seconds(-2.5e-6) == Duration(-2'500'000));
  CHECK((1_ms).seconds() == Approx(1e-3));
}

TEST_CASE("ratios are plain numbers") {
  CHECK(1_s / 4_s == Approx(0.25));
  CHECK(1_MiB / 1_KiB == Approx(1024));
  CHECK(10_Gbps / 40_Gbps == Approx(0.25));
  CHECK(scaled(3_us, 0.5) == Duration(1'500'000));
  CHECK(scaled(10_GBps, 0.1) == 1_GBps);
}

TEST_CASE("quantities do not mix") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<std::int64_t, Bytes>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<Bytes, Duration>);
}

}  // namespace rackrail::units_test
