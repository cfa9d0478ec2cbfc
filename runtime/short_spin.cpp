#include "runtime/short_spin.hpp"

#include <algorithm>
#include <thread>

namespace rackrail::runtime {
namespace {

constexpr std::chrono::microseconds kLongestSpin(50);
// A yield is a system call, as long as a short message takes on its way.
constexpr std::chrono::microseconds kBeforeYielding(5);
constexpr std::chrono::microseconds kLost(500);  // the core, to a thread that computes
constexpr std::chrono::milliseconds kWithoutSpin(100);
constexpr std::chrono::seconds kMostWithoutSpin(10);

}  // namespace

void ShortSpin::happened(Clock::time_point now) {
  if (since_) {
    notice_loss(now);
    was_short_ = now - *since_ <= kLongestSpin;
    since_.reset();
  }
}

bool ShortSpin::goes_on(Clock::time_point now) {
  if (!since_) {
    since_ = now;
  }
  notice_loss(now);
  latest_ = now;
  is_spinning_ = was_short_ && now >= sleeps_until_ && now - *since_ <= kLongestSpin;
  return is_spinning_;
}

/// Of the core, since it was asked whether the spin goes on.
void ShortSpin::notice_loss(Clock::time_point now) {
  if (is_spinning_ && now - latest_ > kLost) {
    const bool is_soon = now - sleeps_until_ < penalty_;
    penalty_ = is_soon ? std::min<Clock::duration>(2 * penalty_, kMostWithoutSpin) : kWithoutSpin;
    sleeps_until_ = now + penalty_;
  }
  is_spinning_ = false;
}

void ShortSpin::interrupt() {
  since_.reset();
  is_spinning_ = false;
}

void ShortSpin::pause() const {
  if (latest_ - *since_ > kBeforeYielding) {
    std::this_thread::yield();
  }
}

}  // namespace rackrail::runtime
