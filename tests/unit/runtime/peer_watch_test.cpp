#include "runtime/peer_watch.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

namespace rackrail::runtime::peer_watch_test {
namespace {

using namespace std::chrono_literals;

/// Rank 0 of four, whose loop looks every 50 ms.
class Story {
 public:
  /// What comes every 100 ms from those who are alive; returns who was found silent.
  std::optional<PeerWatch::Silence> pass(std::chrono::milliseconds time,
                                         const std::vector<std::size_t>& alive) {
    const PeerWatch::TimePoint end = now + time;
    while (now < end) {
      now += 50ms;
      if ((now.time_since_epoch() / 50ms) % 2 == 0) {
        for (const std::size_t rank : alive) {
          watch.heard(Rank(rank), now);
        }
      }
      pulses += watch.is_pulse_due(now) ? 1 : 0;
      if (const auto silent = watch.find_silent(now)) {
        return silent;
      }
    }
    return std::nullopt;
  }

  PeerWatch::TimePoint now{1000h};
  PeerWatch watch{4, Rank(0), {.period = 100_ms, .patience = 1_s, .first_patience = 10_s}, now};
  int pulses = 0;
};

}  // namespace

TEST_CASE("a peer that was heard and then not for the patience is silent, and only that one") {
  Story story;
  CHECK_FALSE(story.pass(5s, {1, 2, 3}).has_value());
  CHECK(story.pulses == 50);
  const PeerWatch::TimePoint cut = story.now;
  const auto silent = story.pass(2s, {1, 3});
  REQUIRE(silent.has_value());
  CHECK(silent->peer == Rank(2));
  CHECK(silent->length >= 1_s);
  CHECK(story.now - cut >= 900ms);  // last heard at most a period before
  CHECK(story.now - cut <= 1100ms);
}

TEST_CASE("who was never heard has more time") {
  Story story;
  CHECK_FALSE(story.pass(9s, {1, 3}).has_value());
  const auto silent = story.pass(2s, {1, 3});
  REQUIRE(silent.has_value());
  CHECK(silent->peer == Rank(2));
}

TEST_CASE("nothing is expected of who has ended its connections") {
  Story story;
  CHECK_FALSE(story.pass(1s, {1, 2, 3}).has_value());
  story.watch.forget(Rank(2));
  CHECK_FALSE(story.pass(20s, {1, 3}).has_value());
}

TEST_CASE("a pause of this process is not held against the peers") {
  Story story;
  CHECK_FALSE(story.pass(1s, {1, 2, 3}).has_value());
  story.now += 30s;
  CHECK_FALSE(story.watch.find_silent(story.now).has_value());
  CHECK_FALSE(story.pass(800ms, {}).has_value());
  CHECK(story.pass(400ms, {}).has_value());
}

}  // namespace rackrail::runtime::peer_watch_test
