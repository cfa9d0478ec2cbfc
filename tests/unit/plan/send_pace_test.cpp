#include "plan/send_pace.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>

namespace rackrail::plan::send_pace_test {
namespace {

constexpr std::int64_t next(std::int64_t before, std::int64_t now, std::int64_t of_slice) {
  return next_departure<std::int64_t, std::int64_t>(before, now, of_slice, 20);
}

TEST_CASE("a slice moves the time of the next one on, and who is late makes up for a little") {
  STATIC_REQUIRE(next(50, 55, 5) == 55);  // 5 late: all of it
  STATIC_REQUIRE(next(50, 65, 5) == 55);
  STATIC_REQUIRE(next(50, 100, 5) == 85);                                       // 50 late: 20 of it
  STATIC_REQUIRE(next(50, 100, 1) == 100 - kSlicesToCatchUp + 1);               // as many slices
  STATIC_REQUIRE(next(std::numeric_limits<std::int64_t>::min(), 0, 5) == -15);  // the first
}

}  // namespace
}  // namespace rackrail::plan::send_pace_test
