#include "runtime/progress_loop.hpp"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

#include "runtime/time_slice.hpp"

namespace rackrail::runtime {
namespace {

constexpr Duration kLongestRest = 50_ms;                // also notices a stop
constexpr std::chrono::milliseconds kAside(2);          // after a turn of the caller's
constexpr std::chrono::microseconds kPolling(300);      // a small message is there by then
constexpr auto kMostLending = std::chrono::seconds(1);  // of the caller's memory, once aborted

Duration rest_until(const std::optional<std::chrono::steady_clock::time_point>& due) {
  if (!due) {
    return kLongestRest;
  }
  const std::chrono::nanoseconds left = *due - std::chrono::steady_clock::now();
  constexpr std::int64_t kPicoseconds = 1000;
  return std::clamp(Duration(left.count() * kPicoseconds), Duration(), kLongestRest);
}

Duration cpu_time_of(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) {
    return {};
  }
  return Duration(time.tv_sec * 1'000'000'000'000 + time.tv_nsec * 1'000);
}

}  // namespace

void ProgressLoop::start() {
  {
    const std::lock_guard lock(mutex_);
    memory_is_free_ = false;
  }
  thread_ = std::thread([this] { loop(); });
}

void ProgressLoop::stop() noexcept {
  if (thread_.joinable()) {
    stopping_ = true;
    rouse();
    thread_.join();
  }
}

void ProgressLoop::abort(const std::string& why, std::optional<MissedPeer> peer) {
  {
    const std::lock_guard lock(mutex_);
    if (reason_) {
      return;
    }
    reason_ = why;
    missed_ = std::move(peer);
  }
  changed_.notify_all();
  rouse();
}

void ProgressLoop::rouse() {
  {
    const std::lock_guard lock(mutex_);
    aside_until_ = {};
  }
  is_wanted_.notify_all();
  transport_.wake();
}

Duration ProgressLoop::cpu_time() const {
  clockid_t clock{};
  // The handle is not for const in the standard library.
  if (pthread_getcpuclockid(const_cast<std::thread&>(thread_).native_handle(), &clock) != 0) {
    return {};
  }
  const std::lock_guard lock(mutex_);
  return cpu_time_of(clock) + callers_cpu_time_;
}

bool ProgressLoop::is_aborted() const {
  const std::lock_guard lock(mutex_);
  return reason_.has_value();
}

void ProgressLoop::loop() {
  take_short_time_slices();  // what comes is taken while the cores compute
  take_larger_share();
  work();
  tell_of_missed();
  const std::lock_guard turn(turn_);  // nobody else's any more
  halt();
  complete_sends();
  {
    const std::lock_guard lock(mutex_);
    memory_is_free_ = true;
  }
  changed_.notify_all();
  while (!stopping_) {
    progress_or_sleep(kLongestRest);
  }
}

void ProgressLoop::work() {
  ShortSpin spin;
  while (true) {
    if (stand_aside()) {
      spin.interrupt();
    }
    std::unique_lock turn(turn_);
    if (stopping_ || is_aborted()) {
      return;
    }
    try {
      const ShortSpin::Clock::time_point start = ShortSpin::Clock::now();
      if (work_a_round() != 0) {
        spin.happened(start);
      } else if (spin.goes_on()) {
        turn.unlock();
        spin.pause();
      } else if (const Duration rest = rest_until(next_due()); transport_.arm()) {
        turn.unlock();
        transport_.sleep(rest);
      }
    } catch (...) {
      fail();  // with the turn, which nobody takes after that
      return;
    }
  }
}

/// How much has happened.
std::size_t ProgressLoop::work_a_round() {
  std::size_t happened = take_launches();
  happened += transport_.progress();
  happened += advance();
  report_finished();
  return happened;
}

/// As long as the caller has its turn, or has just had it; whether that was so.
bool ProgressLoop::stand_aside() {
  std::unique_lock lock(mutex_);
  const auto is_needed = [this] {
    return reason_ || stopping_ ||
           (!stands_aside_ && std::chrono::steady_clock::now() >= aside_until_);
  };
  if (stands_aside_) {
    transport_.wake();  // what woke this thread may have been meant for the other one
  }
  bool has_stood_aside = false;
  while (!is_needed()) {
    has_stood_aside = true;
    // The caller's turn ends without a word.
    is_wanted_.wait_until(lock,
                          stands_aside_ ? std::chrono::steady_clock::now() + kAside : aside_until_);
  }
  return has_stood_aside;
}

/// The thread has the turn where peers were early: what they sent woke it. It lets go after its
/// round then, or the next all-reduce, too, would find it awake, and each would take twice as long.
bool ProgressLoop::ask_for_turn(std::unique_lock<std::mutex>& turn) {
  {
    const std::lock_guard lock(mutex_);
    stands_aside_ = true;
  }
  const auto start = std::chrono::steady_clock::now();
  while (!turn.try_lock()) {
    if (is_aborted() || std::chrono::steady_clock::now() - start > kPolling) {
      {
        const std::lock_guard lock(mutex_);
        stands_aside_ = false;
      }
      rouse();
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

void ProgressLoop::take_turn(const std::function<bool()>& is_over, bool may_ask) {
  std::unique_lock turn(turn_, std::try_to_lock);
  const bool is_free = turn.owns_lock();
  if (is_free ? is_over() : !may_ask || !ask_for_turn(turn)) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stands_aside_ = true;
  }
  const Duration before = cpu_time_of(CLOCK_THREAD_CPUTIME_ID);
  bool is_wanted = true;
  try {
    auto latest = std::chrono::steady_clock::now();  // that something happened
    while (!is_over()) {
      if (work_a_round() != 0) {
        latest = std::chrono::steady_clock::now();
      } else if (std::chrono::steady_clock::now() - latest < kPolling) {
        std::this_thread::yield();
      } else if (!is_over()) {
        transport_.wait(rest_until(next_due()));
      }
    }
    is_wanted = next_due() || !transport_.arm();
  } catch (...) {
    fail();
  }
  {
    const std::lock_guard lock(mutex_);
    stands_aside_ = false;
    is_wanted = is_wanted || reason_ || is_busy();
    aside_until_ = std::chrono::steady_clock::now() + kAside;
    callers_cpu_time_ += cpu_time_of(CLOCK_THREAD_CPUTIME_ID) - before;
  }
  turn.unlock();
  if (is_wanted) {
    rouse();
  }
}

void ProgressLoop::work_once() {
  std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn.owns_lock() || is_aborted()) {
    rouse();
    return;
  }
  const Duration before = cpu_time_of(CLOCK_THREAD_CPUTIME_ID);
  bool is_wanted = true;
  try {
    constexpr int kMostRounds = 64;  // then it is not small, or there is more to do besides
    bool is_idle = false;
    for (int round = 0; round < kMostRounds && !is_idle; ++round) {
      is_idle = work_a_round() == 0;
    }
    is_wanted = !is_idle || next_due() || !transport_.arm();
  } catch (...) {
    fail();
  }
  turn.unlock();
  {
    const std::lock_guard lock(mutex_);
    callers_cpu_time_ += cpu_time_of(CLOCK_THREAD_CPUTIME_ID) - before;
  }
  if (is_wanted) {
    rouse();
  }
}

/// By the exception that is being handled.
void ProgressLoop::fail() noexcept {
  try {
    throw;
  } catch (const MissedPeerError& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!reason_) {
        missed_here_ = error.peer();
      }
    }
    abort(error.what(), error.peer());
  } catch (const std::exception& error) {
    abort(error.what());
  }
}

void ProgressLoop::tell_of_missed() {
  std::optional<MissedPeer> peer;
  {
    const std::lock_guard lock(mutex_);
    peer = missed_here_;
  }
  if (peer && on_missed_) {
    on_missed_(*peer);
  }
}

// A send to a peer that hangs may never complete: it is given up after a while.
void ProgressLoop::complete_sends() noexcept {
  const auto deadline = std::chrono::steady_clock::now() + kMostLending;
  while (is_borrowing() && std::chrono::steady_clock::now() < deadline) {
    progress_or_sleep(1_ms);
  }
}

void ProgressLoop::progress_or_sleep(Duration at_most) noexcept {
  try {
    if (transport_.progress() == 0) {
      transport_.wait(at_most);
    }
  } catch (const std::exception&) {
    // The first reason counts, and there is one.
  }
}

}  // namespace rackrail::runtime
