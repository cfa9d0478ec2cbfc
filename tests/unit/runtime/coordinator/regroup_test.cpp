#include "runtime/coordinator/regroup.hpp"

#include <catch2/catch.hpp>
#include <chrono>

namespace rackrail::runtime::regroup_test {
namespace {

using namespace std::chrono_literals;

const TimePoint kReturnDeadline{100s};

Regroup of_seats(const std::vector<std::size_t>& seats) {
  std::vector<Rank> left;
  for (const std::size_t seat : seats) {
    left.emplace_back(seat);
  }
  return {left, kReturnDeadline};
}

Regroup::Member with_steps(std::uint32_t step, std::uint32_t oldest) {
  JoinRequest request;
  request.returning = Returning{.seat = Rank(0), .epoch = 1, .step = step, .oldest_step = oldest};
  return {nullptr, request};
}

}  // namespace

TEST_CASE("a regroup is complete when all who are left have come and have a plan") {
  Regroup regroup = of_seats({0, 2, 3});
  CHECK_FALSE(regroup.expects(Rank(1)));
  regroup.come(Rank(0), with_steps(5, 4));
  regroup.come(Rank(2), with_steps(5, 4));
  regroup.set_plan({"plan for three", "digest"});
  CHECK_FALSE(regroup.is_complete());
  regroup.come(Rank(3), with_steps(5, 4));
  CHECK(regroup.is_complete());
  CHECK(regroup.plan().plan == "plan for three");
}

TEST_CASE("who is lost meanwhile takes the plan along") {
  Regroup regroup = of_seats({0, 2, 3});
  for (const std::size_t seat : {0U, 2U, 3U}) {
    regroup.come(Rank(seat), with_steps(5, 4));
  }
  regroup.set_plan({"plan for three", "digest"});
  const std::uint32_t question = regroup.question();
  regroup.lose(Rank(2));
  CHECK_FALSE(regroup.is_complete());
  CHECK(regroup.question() != question);
  CHECK_FALSE(regroup.expects(Rank(2)));
  CHECK(regroup.left() == std::vector{Rank(0), Rank(3)});
  regroup.set_plan({"plan for two", "digest"});
  CHECK(regroup.is_complete());
}

TEST_CASE("survivors go on from the smallest number of steps that any has") {
  // By brute force over all states that a rank can be in around step 5: what one that kept the step
  // before may have, and one that kept none.
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> states = {
      {5, 5}, {5, 4}, {6, 6}, {6, 5}, {7, 6}};
  for (const auto& [first, first_oldest] : states) {
    for (const auto& [second, second_oldest] : states) {
      CAPTURE(first, first_oldest, second, second_oldest);
      Regroup regroup = of_seats({0, 1});
      regroup.come(Rank(0), with_steps(first, first_oldest));
      regroup.come(Rank(1), with_steps(second, second_oldest));
      std::optional<std::uint32_t> expected;
      for (const std::uint32_t step : {4U, 5U, 6U, 7U}) {  // the latest that both can be at
        const auto can = [step](std::uint32_t at, std::uint32_t oldest) {
          return step == at || step == oldest;
        };
        if (can(first, first_oldest) && can(second, second_oldest)) {
          expected = step;
        }
      }
      CHECK(regroup.common_step() == expected);
    }
  }
}

TEST_CASE("a vacant seat waits for a newcomer, who has no say in the step") {
  Regroup regroup = of_seats({0, 1, 3});
  regroup.set_plan({"plan for three", "digest"});
  regroup.vacate(Rank(1), kReturnDeadline + 20s);
  CHECK(regroup.is_vacant(Rank(1)));
  CHECK_FALSE(regroup.expects(Rank(1)));  // who had it
  regroup.come(Rank(0), with_steps(3, 2));
  regroup.come(Rank(3), with_steps(2, 1));
  CHECK_FALSE(regroup.is_complete());
  CHECK(regroup.overdue(kReturnDeadline + 19s).empty());
  SECTION("who comes") {
    regroup.take(Rank(1), {nullptr, JoinRequest{}});
    CHECK(regroup.is_complete());
    CHECK(regroup.newcomers() == std::vector{Rank(1)});
    CHECK(regroup.common_step() == 2);
    CHECK(regroup.overdue(kReturnDeadline + 99s).empty());
  }
  SECTION("who does not come") {
    CHECK(regroup.overdue(kReturnDeadline + 20s) == std::vector{Rank(1)});
    regroup.lose(Rank(1));
    CHECK_FALSE(regroup.is_complete());  // a plan for two is wanted
    CHECK(regroup.left() == std::vector{Rank(0), Rank(3)});
  }
  SECTION("who comes for a seat that had been given up") {
    regroup.take(Rank(1), {nullptr, JoinRequest{}});
    regroup.take(Rank(2), {nullptr, JoinRequest{}});
    CHECK(regroup.left() == std::vector{Rank(0), Rank(1), Rank(2), Rank(3)});
    CHECK(regroup.newcomers() == std::vector{Rank(1), Rank(2)});
  }
}

TEST_CASE("there is no step where nobody has parameters") {
  Regroup regroup = of_seats({0, 1});
  CHECK(regroup.has_holders());  // both may come back
  regroup.vacate(Rank(0), kReturnDeadline);
  CHECK(regroup.has_holders());
  regroup.take(Rank(0), {nullptr, JoinRequest{}});
  JoinRequest nothing;
  nothing.returning =
      Returning{.seat = Rank(1), .epoch = 2, .step = 0, .oldest_step = 0, .has_parameters = false};
  regroup.come(Rank(1), {nullptr, nothing});
  CHECK_FALSE(regroup.has_holders());
  CHECK_FALSE(regroup.common_step().has_value());
}

TEST_CASE("whoever has not come by the deadline is overdue, and nobody before it") {
  Regroup regroup = of_seats({0, 2, 3});
  regroup.come(Rank(2), with_steps(5, 4));
  CHECK(regroup.overdue(kReturnDeadline - 1ms).empty());
  CHECK(regroup.overdue(kReturnDeadline) == std::vector{Rank(0), Rank(3)});
}

}  // namespace rackrail::runtime::regroup_test
