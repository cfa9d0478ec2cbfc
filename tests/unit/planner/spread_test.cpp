// How what enters a switch is divided.
#include "planner/packing/spread.hpp"

#include <catch2/catch.hpp>
#include <map>

namespace rackrail::planner::spread_test {
namespace {

using Cells = std::map<std::pair<std::size_t, std::size_t>, std::int64_t>;

Cells spread(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns,
             Spread how, bool with_diagonal = true) {
  Cells cells;
  for (const Share& share : spread_evenly(
           rows, columns, [&](std::size_t r, std::size_t c) { return with_diagonal || r != c; },
           how)) {
    cells[{share.row, share.column}] += share.units;
  }
  return cells;
}

TEST_CASE("fair shares are those of flows that grow together") {
  // All grow to 10, when the first row is full; then the first column's to 30, when it is, and the
  // last to 70.
  const Cells fair = spread({20, 100}, {40, 80}, Spread::kFairly);
  CHECK(fair == Cells{{{0, 0}, 10}, {{0, 1}, 10}, {{1, 0}, 30}, {{1, 1}, 70}});
  const Cells in_proportion = spread({20, 100}, {40, 80}, Spread::kInProportion);
  CHECK(in_proportion.at({0, 0}) <= 7);
  CHECK(in_proportion.at({0, 1}) >= 13);
}

TEST_CASE("fair shares fill what the allowed pairs let through") {
  const std::vector<std::int64_t> both{60, 60, 30};
  const Cells fair = spread(both, both, Spread::kFairly, false);
  CHECK(fair ==
        Cells{{{0, 1}, 45}, {{0, 2}, 15}, {{1, 0}, 45}, {{1, 2}, 15}, {{2, 0}, 15}, {{2, 1}, 15}});
}

TEST_CASE("where fair shares leave lines that are not full, shares are in proportion") {
  // All could grow to 10 only; the last column is reached by the first row alone.
  std::map<std::size_t, std::int64_t> sums;
  for (const Share& share : spread_evenly(
           {40, 20}, {20, 40}, [](std::size_t r, std::size_t c) { return r == 0 || c == 0; },
           Spread::kFairly)) {
    sums[share.column] += share.units;
  }
  CHECK(sums[0] == 20);
  CHECK(sums[1] == 40);
}

}  // namespace
}  // namespace rackrail::planner::spread_test
