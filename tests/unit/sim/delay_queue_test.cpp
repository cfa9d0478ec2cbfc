#include "sim/delay_queue.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "sim/ring_buffer.hpp"

namespace rackrail::sim::delay_queue_test {
namespace {

TEST_CASE("a delay queue gives events by time, and by creation where times are equal") {
  const auto seed = GENERATE(1U, 2U, 3U);
  // Few delays, so that lines are used, or more than there are lines.
  const auto delays = GENERATE(3, 5'000);
  CAPTURE(seed, delays);
  std::mt19937 random(seed);
  DelayQueue<int> queue;
  std::map<std::pair<Time, int>, int> expected;  // by time and creation
  Time now = 0;
  int created = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (queue.empty() || random() % 100 < 52) {
      const Time delay = static_cast<Time>(random() % static_cast<unsigned>(delays)) * 1'000'003;
      queue.push(now, delay, created);
      expected.emplace(std::pair(now + delay, created), created);
      ++created;
    } else {
      REQUIRE(queue.next_time() == expected.begin()->first.first);
      REQUIRE(queue.next() == expected.begin()->second);
      now = queue.next_time();
      REQUIRE(queue.pop() == expected.begin()->second);
      expected.erase(expected.begin());
    }
  }
  while (!expected.empty()) {
    REQUIRE(queue.pop() == expected.begin()->second);
    expected.erase(expected.begin());
  }
  CHECK(queue.empty());
}

TEST_CASE("a ring buffer keeps the order while it grows around its end") {
  RingBuffer<int> buffer;
  int in = 0;
  int out = 0;
  for (int round = 1; round < 40; ++round) {
    for (int i = 0; i < round; ++i) {
      buffer.push_back() = in++;
    }
    for (int i = 0; i < round - 1; ++i) {
      REQUIRE(buffer.front() == out++);
      buffer.pop_front();
    }
    REQUIRE(buffer.size() == static_cast<std::size_t>(in - out));
  }
}

}  // namespace
}  // namespace rackrail::sim::delay_queue_test
