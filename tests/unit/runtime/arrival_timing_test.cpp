#include "runtime/arrival_timing.hpp"

#include <catch2/catch.hpp>
#include <limits>

namespace rackrail::runtime::arrival_timing_test {
namespace {

using namespace std::chrono_literals;

// The sender's clock is behind or ahead by this.
constexpr std::chrono::nanoseconds kApart[] = {0s, 100h, -100h};

}  // namespace

TEST_CASE("slices that are under way together count once, pauses do not count") {
  for (const std::chrono::nanoseconds apart : kApart) {
    ArrivalTiming timing;
    const auto arrived = [&](std::chrono::nanoseconds sent, std::chrono::nanoseconds now) {
      return timing.arrived(sent + apart, now + 200h);
    };
    // 1 ms is what there is without a queue.
    CHECK(arrived(0ms, 1ms) == Duration());
    // Three are sent at once and come every 10 ms.
    CHECK(arrived(100ms, 111ms) == 10_ms);
    CHECK(arrived(100ms, 121ms) == 10_ms);
    CHECK(arrived(100ms, 131ms) == 10_ms);
    // Nothing for a second; one is sent while another is under way.
    CHECK(arrived(1131ms, 1142ms) == 10_ms);
    CHECK(arrived(1135ms, 1143ms) == 1_ms);
  }
}

TEST_CASE("clocks may drift apart") {
  ArrivalTiming timing;
  // A slice a second, under way for a millisecond, by clocks that differ by 20 ppm: not even the
  // drift of two minutes counts.
  for (int second = 0; second < 3600; ++second) {
    const std::chrono::nanoseconds sent = std::chrono::seconds(second);
    const std::chrono::nanoseconds now = sent + 1ms + std::chrono::microseconds(20) * second;
    CHECK(timing.arrived(sent, now) <= Duration(20'000'000 * std::int64_t{121}));
  }
}

TEST_CASE("whatever a peer says it sent when, spans are within what has passed") {
  ArrivalTiming timing;
  using Limits = std::numeric_limits<std::int64_t>;
  std::chrono::nanoseconds now = 1h;
  for (const std::int64_t sent : {Limits::min(), Limits::max(), std::int64_t{0}, Limits::min()}) {
    const Duration span = timing.arrived(std::chrono::nanoseconds(sent), now);
    CHECK(span >= Duration());
    CHECK(span <= 1_s);
    now += 1s;
  }
}

}  // namespace rackrail::runtime::arrival_timing_test
