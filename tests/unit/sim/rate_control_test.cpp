#include "sim/rate_control.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

namespace rackrail::sim::rate_control_test {
namespace {

constexpr double kLine = 0.0125;  // 100 Gbit/s in bytes per picosecond

/// The published values, with which the figures below are worked out by hand.
DcqcnOptions published() {
  DcqcnOptions options;
  options.gain = 1.0 / 256;
  options.notification_interval = 50_us;
  options.alpha_interval = 55_us;
  options.increase_interval = 55_us;
  options.increase_bytes = Bytes(10'000'000);
  options.fast_recovery_steps = 5;
  options.additive_increase = 1.0 / 1000;
  options.hyper_increase = 1.0 / 100;
  options.least_rate = 1.0 / 1000;
  return options;
}

TEST_CASE("the first notification halves the rate, and fast recovery comes back half by half") {
  const DcqcnOptions options = published();
  DcqcnRate rate(options, kLine);
  CHECK(rate.rate(0) == kLine);
  rate.notify(1'000'000, kLine);
  CHECK(rate.rate(1'000'000) == Approx(kLine / 2));
  // One step after T, not before.
  CHECK(rate.rate(55'999'999) == Approx(kLine / 2));
  CHECK(rate.rate(56'000'000) == Approx(kLine * 3 / 4));
  CHECK(rate.rate(111'000'000) == Approx(kLine * 7 / 8));
  // Steps that passed unseen are made up for: five in all are 1 - 1/64.
  CHECK(rate.rate(276'000'000) == Approx(kLine * 63 / 64));
}

TEST_CASE("after fast recovery the target rises by the additive increase") {
  const DcqcnOptions options = published();
  DcqcnRate rate(options, kLine);
  // Two cuts in a row: the target is half the line then, the rate a quarter (alpha stays at 1).
  rate.notify(0, kLine);
  rate.notify(1, kLine);
  CHECK(rate.rate(1) == Approx(kLine / 4));
  constexpr Time kStep = 55'000'000;
  double target = kLine / 2;
  double expected = kLine / 4;
  for (int step = 1; step <= 20; ++step) {
    target += step > 5 ? kLine / 1000 : 0;
    expected = (expected + target) / 2;
    CAPTURE(step);
    CHECK(rate.rate(1 + step * kStep) == Approx(expected));
  }
}

TEST_CASE("increases are shares of the link that marked, up to the line rate") {
  const DcqcnOptions options = published();
  DcqcnRate rate(options, kLine);
  rate.notify(0, kLine);
  rate.notify(1, kLine * 20);
  CHECK(rate.rate(1) == Approx(kLine / 4));
  constexpr Time kStep = 55'000'000;
  double target = kLine / 2;
  double expected = kLine / 4;
  for (int step = 1; step <= 20; ++step) {
    target = std::min(target + (step > 5 ? kLine / 50 : 0), kLine);
    expected = (expected + target) / 2;
    CAPTURE(step);
    CHECK(rate.rate(1 + step * kStep) == Approx(expected));
  }
}

TEST_CASE("a link that marked and was then cut leaves the increases as they were") {
  const DcqcnOptions options = published();
  DcqcnRate rate(options, kLine);
  DcqcnRate other(options, kLine);
  for (Time at = 0; at < 10; ++at) {
    rate.notify(at, kLine * 20);
    other.notify(at, at == 9 ? 0 : kLine * 20);
  }
  constexpr Time kLater = 55'000'000 * 8;
  CHECK(rate.rate(kLater) > kLine / 100);
  CHECK(other.rate(kLater) == rate.rate(kLater));
}

TEST_CASE("when time and bytes have both passed fast recovery, the increase is hyper") {
  const DcqcnOptions options = published();
  DcqcnRate rate(options, kLine);
  rate.notify(0, kLine);
  rate.notify(1, kLine);
  for (int i = 0; i < 6; ++i) {
    rate.sent(options.increase_bytes.count());
  }
  // Six steps by bytes: five of recovery, one additive.
  double target = kLine / 2;
  double expected = target - kLine / 4 / 32;
  target += kLine / 1000;
  expected = (expected + target) / 2;
  CHECK(rate.rate(2) == Approx(expected));
  for (int step = 1; step <= 6; ++step) {
    target += kLine / (step > 5 ? 100 : 1000);
    expected = (expected + target) / 2;
    CAPTURE(step);
    CHECK(rate.rate(1 + step * Time{55'000'000}) == Approx(expected));
  }
}

TEST_CASE("alpha rises with notifications and decays without them") {
  const DcqcnOptions options = published();
  DcqcnRate rate(options, kLine);
  // 256 intervals without a notification: (1 - g)^256 is left, then one notification adds g.
  rate.notify(Time{55'000'000} * 256, kLine);
  const double left = 0.3671595;  // (255/256)^256
  CHECK(rate.alpha() == Approx(left * 255 / 256 + 1.0 / 256).epsilon(1e-6));
  CHECK(rate.rate(Time{55'000'000} * 256) == Approx(kLine * (1 - left / 2)).epsilon(1e-6));
}

TEST_CASE("a rate never falls below the least one, and comes back to the line rate in the end") {
  const DcqcnOptions options = published();
  DcqcnRate rate(options, kLine);
  for (int i = 0; i < 100; ++i) {
    rate.notify(i, kLine);
  }
  CHECK(rate.rate(100) == Approx(kLine / 1000));
  CHECK(rate.rate(Time{1'000'000'000'000}) == kLine);
}

TEST_CASE("the time for bytes counts the increases on the way") {
  const DcqcnOptions options = published();
  DcqcnRate rate(options, kLine);
  rate.notify(0, kLine);
  // 55 us at half the line and 55 us at three quarters of it.
  const auto bytes = static_cast<std::int64_t>(55e6 * kLine * 1.25);
  CHECK(rate.time_for(bytes, 0) == Approx(110e6).epsilon(1e-5));
  CHECK(rate.rate(0) == Approx(kLine / 2));
}

}  // namespace
}  // namespace rackrail::sim::rate_control_test
