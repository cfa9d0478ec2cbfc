// That a wait begins with a spin where the one before was short, and only there.
#include "runtime/short_spin.hpp"

#include <catch2/catch.hpp>
#include <chrono>

namespace rackrail::runtime::short_spin_test {
namespace {

using namespace std::chrono_literals;

constexpr ShortSpin::Clock::time_point kStart(1h);

TEST_CASE("a wait is a spin for 50 us, and then a sleep") {
  ShortSpin spin;
  CHECK(spin.goes_on(kStart));
  CHECK(spin.goes_on(kStart + 50us));
  CHECK_FALSE(spin.goes_on(kStart + 51us));
  CHECK_FALSE(spin.goes_on(kStart + 2s));
}

TEST_CASE("after a long wait the next one is a sleep from its beginning, until one was short") {
  ShortSpin spin;
  CHECK(spin.goes_on(kStart));
  CHECK_FALSE(spin.goes_on(kStart + 51us));
  spin.happened(kStart + 1ms);
  CHECK_FALSE(spin.goes_on(kStart + 2ms));
  spin.happened(kStart + 2ms + 20us);
  CHECK(spin.goes_on(kStart + 3ms));
  CHECK(spin.goes_on(kStart + 3ms + 50us));
}

TEST_CASE("what happens without a wait says nothing about waits") {
  ShortSpin spin;
  CHECK(spin.goes_on(kStart));
  CHECK_FALSE(spin.goes_on(kStart + 51us));
  spin.happened(kStart + 1ms);
  spin.happened(kStart + 1ms + 1us);
  CHECK_FALSE(spin.goes_on(kStart + 2ms));
}

TEST_CASE("a wait that is interrupted is not a long one, and no core is lost in it") {
  ShortSpin spin;
  CHECK(spin.goes_on(kStart));
  spin.interrupt();
  spin.happened(kStart + 2ms);
  CHECK(spin.goes_on(kStart + 3ms));
  spin.interrupt();
  CHECK(spin.goes_on(kStart + 5ms));
}

TEST_CASE("who loses the core in a spin sleeps for a while, and longer where it is lost again") {
  ShortSpin spin;
  // A wait of 10 us that begins then; whether it is a spin.
  const auto waits_at = [&spin](ShortSpin::Clock::time_point now) {
    const bool is_spin = spin.goes_on(now);
    spin.happened(now + 10us);
    return is_spin;
  };
  // Another thread has the core for 2 ms.
  const auto loses_at = [&spin](ShortSpin::Clock::time_point now) {
    CHECK(spin.goes_on(now));
    CHECK_FALSE(spin.goes_on(now + 2ms));
    spin.happened(now + 2ms);
  };
  loses_at(kStart);
  CHECK_FALSE(waits_at(kStart + 50ms));
  CHECK_FALSE(waits_at(kStart + 101ms));
  CHECK(waits_at(kStart + 103ms));
  loses_at(kStart + 104ms);
  waits_at(kStart + 205ms);
  CHECK_FALSE(waits_at(kStart + 300ms));
  CHECK(waits_at(kStart + 307ms));
  // The message came meanwhile.
  CHECK(spin.goes_on(kStart + 308ms));
  spin.happened(kStart + 310ms);
  waits_at(kStart + 400ms);
  CHECK_FALSE(waits_at(kStart + 700ms));
  CHECK(waits_at(kStart + 711ms));
  // All was well for longer than it had slept: as the first time.
  loses_at(kStart + 2s);
  waits_at(kStart + 2s + 50ms);
  CHECK(waits_at(kStart + 2s + 103ms));
}

}  // namespace
}  // namespace rackrail::runtime::short_spin_test
