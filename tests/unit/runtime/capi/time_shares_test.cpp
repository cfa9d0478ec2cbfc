#include "runtime/capi/time_shares.hpp"

#include <catch2/catch.hpp>
#include <chrono>

namespace rackrail::capi::time_shares_test {
namespace {

using std::chrono::seconds;

TEST_CASE("a piece of work may take what is left of a time but for what is kept for others") {
  const TimeShares::Clock::time_point start;
  TimeShares shares(start, seconds(20), seconds(2), 4);
  CHECK(shares.end_of_next(start) == start + seconds(14));
  CHECK(shares.end_of_next(start + seconds(3)) == start + seconds(16));  // whatever it left
  CHECK(shares.end_of_next(start + seconds(16)) == start + seconds(18));
  CHECK(shares.end_of_next(start + seconds(18)) == start + seconds(20));
}

TEST_CASE("a piece of work has a little time whatever those before it have taken") {
  const TimeShares::Clock::time_point start;
  TimeShares shares(start, seconds(20), seconds(2), 3);
  (void)shares.end_of_next(start);
  CHECK(shares.end_of_next(start + seconds(17)) == start + seconds(19));
  CHECK(shares.end_of_next(start + seconds(30)) == start + seconds(32));
}

}  // namespace
}  // namespace rackrail::capi::time_shares_test
