// How long slices of one peer are under way, measured where they arrive.
//
// A send counts as complete as soon as the kernel has its bytes, so the sender cannot tell a slow
// network from a fast one as long as its buffers hold a step's gradients. The receiver can: each
// slice says when it was sent, by the sender's clock. The two clocks differ by a constant, which is
// at most the smallest difference that was seen between sending and arrival; with it as origin, a
// slice was under way from its sending to its arrival. The union of these spans is the time in
// which the peer had something to send, and what arrived divided by it is the rate that the pair
// of ranks reached, whatever the two were waiting for at other times.
//
// The smallest difference is that of the last one to two minutes, so that clocks may drift. It
// contains what the fastest slice itself took: a peer that only ever sends one slice at a time
// seems faster than it is. Integer nanoseconds, O(1) per slice.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/units.hpp"

namespace rackrail::runtime {

class ArrivalTiming {
 public:
  /// A slice that was sent at `sent`, by the peer's clock, arrived at `now` by the own one, which
  /// never goes back. By how much that makes the time longer in which slices were under way.
  Duration arrived(std::chrono::nanoseconds sent, std::chrono::nanoseconds now) {
    sent = std::clamp(sent, -kFarthest, kFarthest);  // whatever a peer says
    const std::chrono::nanoseconds lag = now - sent;
    if (!smallest_ || now - window_began_ > kWindow) {
      before_ = smallest_.value_or(lag);
      smallest_ = lag;
      window_began_ = now;
    }
    smallest_ = std::min(*smallest_, lag);
    const std::chrono::nanoseconds origin = std::min(*smallest_, before_);
    const std::chrono::nanoseconds begin = std::max(sent + origin, latest_);
    latest_ = now;
    return Duration((now - begin).count() * 1000);
  }

 private:
  static constexpr std::chrono::nanoseconds kWindow = std::chrono::minutes(1);
  static constexpr std::chrono::nanoseconds kFarthest = std::chrono::hours(24 * 365 * 50);

  std::optional<std::chrono::nanoseconds> smallest_;  ///< lag, in this window
  std::chrono::nanoseconds before_{};                 ///< likewise, in the window before
  std::chrono::nanoseconds window_began_{};
  std::chrono::nanoseconds latest_{std::chrono::nanoseconds::min()};  ///< arrival
};

}  // namespace rackrail::runtime
