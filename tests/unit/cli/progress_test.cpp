#include "cli/progress.hpp"

#include <catch2/catch.hpp>

namespace rackrail::cli::progress_test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("long work writes a line every ten seconds, short work none") {
  const ProgressLines::Clock::time_point start{1h};
  ProgressLines lines("simulating", start);
  CHECK_FALSE(lines.line(0, "", start).has_value());
  CHECK_FALSE(lines.line(0.99, "", start + 9999ms).has_value());
  CHECK(lines.line(0.234, "", start + 10s) == "simulating: 23 % after 10 s");
  CHECK_FALSE(lines.line(0.3, "", start + 19s).has_value());
  // Nobody asked for a while: one line, and the next ten seconds later.
  CHECK(lines.line(0.5, "3 of 6 cells", start + 100s) ==
        "simulating: 50 % after 100 s, 3 of 6 cells");
  CHECK_FALSE(lines.line(0.6, "", start + 109s).has_value());
  CHECK(lines.line(1, "", start + 110s) == "simulating: 100 % after 110 s");
  CHECK(lines.line(std::nullopt, "", start + 120s) == "simulating: 120 s so far");
}

}  // namespace
}  // namespace rackrail::cli::progress_test
