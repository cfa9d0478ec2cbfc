#include "runtime/coordinator/task_thread.hpp"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

namespace rackrail::runtime::task_thread_test {

using std::chrono::steady_clock;

TEST_CASE("tasks run one after another in the order of posting") {
  std::vector<int> done;
  {
    TaskThread thread([] { return TaskThread::TimePoint::max(); });
    for (int i = 0; i < 1000; ++i) {
      thread.post([&done, i] { done.push_back(i); });
    }
  }
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(done == expected);
}

TEST_CASE("tasks of several threads never run at the same time") {
  int inside = 0;
  int most_inside = 0;
  int total = 0;
  {
    TaskThread thread([] { return TaskThread::TimePoint::max(); });
    std::vector<std::thread> posters;
    for (int p = 0; p < 4; ++p) {
      posters.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          thread.post([&] {
            most_inside = std::max(most_inside, ++inside);
            ++total;
            --inside;
          });
        }
      });
    }
    for (std::thread& poster : posters) {
      poster.join();
    }
  }
  CHECK(most_inside == 1);
  CHECK(total == 800);
}

TEST_CASE("the turn comes after every task, also of those that wait together") {
  std::vector<int> turns_before;
  int turns = 0;
  {
    std::promise<void> all_posted;
    TaskThread thread([&] {
      ++turns;
      return TaskThread::TimePoint::max();
    });
    thread.post([&] { all_posted.get_future().wait(); });
    for (int i = 0; i < 3; ++i) {
      thread.post([&] { turns_before.push_back(turns); });
    }
    all_posted.set_value();
  }
  REQUIRE(turns_before.size() == 3);
  CHECK(turns_before[1] == turns_before[0] + 1);
  CHECK(turns_before[2] == turns_before[1] + 1);
}

TEST_CASE("the turn comes at the time it asked for") {
  std::atomic<int> turns = 0;
  TaskThread thread([&] {
    ++turns;
    return steady_clock::now() + std::chrono::milliseconds(5);
  });
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  while (turns < 5 && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(turns >= 5);
}

TEST_CASE("what is posted after the end is dropped") {
  bool early = false;
  bool late = false;
  TaskThread thread([] { return TaskThread::TimePoint::max(); });
  thread.post([&] { early = true; });
  thread.finish();
  thread.post([&] { late = true; });
  thread.finish();
  CHECK(early);
  CHECK_FALSE(late);
}

}  // namespace rackrail::runtime::task_thread_test
