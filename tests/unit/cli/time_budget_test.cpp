#include "cli/time_budget.hpp"

#include <catch2/catch.hpp>

namespace rackrail::cli::time_budget_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a budget is used up when what comes next and the end may not fit any more") {
  TimeBudget::Clock::time_point now{};
  TimeBudget budget(seconds(60), [&now] { return now; });
  const auto asked_after = [&](TimeBudget::Clock::duration work) {
    now += work;
    return budget.is_used_up();
  };
  CHECK(!asked_after(seconds(10)));
  CHECK(!asked_after(seconds(15)));  // at 25 s, with 35 s left
  CHECK(!asked_after(seconds(4)));
  CHECK(!asked_after(seconds(1)));   // 15 s twice are not left at 30 s, but half of the budget is
  CHECK(!asked_after(seconds(15)));  // at 45 s
  CHECK(asked_after(seconds(3)));    // a fifth is left
  CHECK(asked_after(seconds(0)));
  CHECK(budget.was_used_up());
}

TEST_CASE("short pieces use a budget to its last eighth, and no piece fits into none") {
  TimeBudget::Clock::time_point now{};
  TimeBudget budget(seconds(1), [&now] { return now; });
  int pieces = 0;
  while (!budget.is_used_up()) {
    now += milliseconds(1);
    ++pieces;
  }
  CHECK(pieces == 875);
  TimeBudget tiny(milliseconds(1), [&now] { return now; });
  CHECK(!tiny.was_used_up());
  now += milliseconds(2);
  CHECK(tiny.is_used_up());
}

}  // namespace
}  // namespace rackrail::cli::time_budget_test
