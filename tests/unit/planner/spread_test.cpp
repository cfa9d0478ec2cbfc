// How what enters a switch is divided.
#include "planner/packing/spread.hpp"

#include <catch2/catch.hpp>
#include <map>

namespace rackrail::planner::spread_test {
namespace {

using Cells = std::map<std::pair<std::size_t, std::size_t>, std::int64_t>;

TEST_CASE("units are spread in proportion to what rows and columns have") {
  Cells cells;
  for (const Share& share :
       spread_evenly({20, 100}, {40, 80}, [](std::size_t, std::size_t) { return true; })) {
    cells[{share.row, share.column}] += share.units;
  }
  CHECK(cells.at({0, 0}) + cells.at({0, 1}) == 20);
  CHECK(cells.at({1, 0}) + cells.at({1, 1}) == 100);
  CHECK(cells.at({0, 0}) + cells.at({1, 0}) == 40);
  CHECK(cells.at({0, 0}) >= 6);
  CHECK(cells.at({0, 0}) <= 7);
}

TEST_CASE("units fill what the allowed pairs let through") {
  // The last column is reached by the first row alone.
  std::map<std::size_t, std::int64_t> sums;
  for (const Share& share : spread_evenly(
           {40, 20}, {20, 40}, [](std::size_t r, std::size_t c) { return r == 0 || c == 0; })) {
    sums[share.column] += share.units;
  }
  CHECK(sums[0] == 20);
  CHECK(sums[1] == 40);
}

}  // namespace
}  // namespace rackrail::planner::spread_test
