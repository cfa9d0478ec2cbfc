#include "base/work.hpp"

#include <catch2/catch.hpp>

namespace rackrail::work_test {
namespace {

constexpr std::uint64_t kMuch = 1'000'000;

/// Steps that were done until it was stopped; kMuch where it was not.
std::uint64_t work(const std::function<bool()>& stop) {
  const StoppableWork stoppable(stop);
  std::uint64_t steps = 0;
  try {
    for (; steps < kMuch; ++steps) {
      Work::step();
    }
  } catch (const WorkStopped&) {
  }
  return steps;
}

}  // namespace

TEST_CASE("work is counted, and stops soon after it is told to") {
  const std::int64_t before = Work::done();
  Work::add(3);
  Work::step(4);
  CHECK(Work::done() - before == 7);
  const std::int64_t limit = Work::done() + 500'000;
  const std::uint64_t steps = work([&] { return Work::done() >= limit; });
  CHECK(steps >= 499'000);
  CHECK(steps <= 520'000);
}

TEST_CASE("where work stops does not depend on what was done before it") {
  const auto stopped_after = [] {
    const std::int64_t limit = Work::done() + 15'000;
    return work([&] { return Work::done() >= limit; });
  };
  const std::uint64_t first = stopped_after();
  Work::step(3'333);
  CHECK(stopped_after() == first);
}

TEST_CASE("work that nobody stops goes on, and so does what is inside of it") {
  CHECK(work({}) == kMuch);
  const StoppableWork outer([] { return true; });
  CHECK(work({}) == kMuch);
  CHECK_THROWS_AS(Work::ask(), WorkStopped);
}

}  // namespace rackrail::work_test
