// Whether who waits for messages looks for them again at once, or sleeps.
//
// To be woken up takes tens of microseconds and, with every message, a system call at either end;
// looking again, yielding in between, takes a core that somebody else may need. So a wait begins
// with a spin no longer than a wake-up costs, and only where the wait before was that short: what
// waits longer, at a slow link or for a computation, sleeps at once. So does, for a while, who lost
// the core in a spin: the scheduler gives it back to those soon that sleep, and not to those that
// have used up their time.
#pragma once

#include <chrono>
#include <optional>

namespace rackrail::runtime {

class ShortSpin {
 public:
  using Clock = std::chrono::steady_clock;

  /// Something happened; `now`: when it was found, before what took its time to be done with it.
  void happened(Clock::time_point now = Clock::now());
  /// Nothing happened: whether to look again at once, after pause(), or to sleep.
  bool goes_on(Clock::time_point now = Clock::now());
  /// After goes_on(): yields the core to other threads, except in the first moments. The caller
  /// holds no lock that they need.
  void pause() const;
  /// It waits for something else meanwhile: what time that takes says nothing.
  void interrupt();

 private:
  void notice_loss(Clock::time_point now);

  std::optional<Clock::time_point> since_;  ///< that nothing happens
  Clock::time_point latest_;                ///< that goes_on() was asked
  Clock::time_point sleeps_until_;          ///< others want the core
  Clock::duration penalty_{};               ///< how long they did, when it was lost the last time
  bool was_short_ = true;                   ///< the wait before
  bool is_spinning_ = false;
};

}  // namespace rackrail::runtime
