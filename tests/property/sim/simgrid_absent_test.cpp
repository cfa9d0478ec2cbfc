// Stands in for simgrid_test.cpp where this build cannot use SimGrid.
#include <catch2/catch.hpp>

#include "tests/support/skip.hpp"

namespace rackrail::simgrid_absent_test {

TEST_CASE("flows of a random set end when SimGrid's CM02 model says") {
  RACKRAIL_SKIP(RACKRAIL_WHY_NO_SIMGRID);
}

}  // namespace rackrail::simgrid_absent_test
