// Divides a time limit among pieces of work that run one after another.
//
// Each piece may use the time that is left when it begins, except for a minimum that is reserved
// for each piece that follows. A search without any time finds next to nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace rackrail::capi {

class TimeShares {
 public:
  using Clock = std::chrono::steady_clock;

  /// `least` is kept for each piece, and had by it even where those before have taken too long.
  TimeShares(Clock::time_point now, Clock::duration whole, Clock::duration least,
             std::size_t pieces)
      : end_(now + whole), least_(least), left_(pieces) {}

  /// When the piece that begins now has to end. Precondition: there is one left.
  Clock::time_point end_of_next(Clock::time_point now) {
    --left_;
    return std::max(now + least_, end_ - least_ * static_cast<Clock::rep>(left_));
  }

 private:
  Clock::time_point end_;
  Clock::duration least_;
  std::size_t left_;
};

}  // namespace rackrail::capi
