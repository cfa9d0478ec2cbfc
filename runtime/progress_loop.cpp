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
constexpr auto kMostLending = std::chrono::seconds(1);  // of the caller's memory, once aborted

Duration rest_until(const std::optional<std::chrono::steady_clock::time_point>& due) {
  if (!due) {
    return kLongestRest;
  }
  const std::chrono::nanoseconds left = *due - std::chrono::steady_clock::now();
  constexpr std::int64_t kPicoseconds = 1000;
  return std::clamp(Duration(left.count() * kPicoseconds), Duration(), kLongestRest);
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
    transport_.wake();
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
  transport_.wake();
}

Duration ProgressLoop::cpu_time() const {
  clockid_t clock{};
  timespec time{};
  // The handle is not for const in the standard library.
  if (pthread_getcpuclockid(const_cast<std::thread&>(thread_).native_handle(), &clock) != 0 ||
      clock_gettime(clock, &time) != 0) {
    return {};
  }
  return Duration(time.tv_sec * 1'000'000'000'000 + time.tv_nsec * 1'000);
}

bool ProgressLoop::is_aborted() const {
  const std::lock_guard lock(mutex_);
  return reason_.has_value();
}

void ProgressLoop::loop() {
  take_short_time_slices();  // what comes is taken while the cores compute
  try {
    work();
  } catch (const MissedPeerError& error) {
    abort(error.what(), error.peer());
    if (on_missed_) {
      on_missed_(error.peer());
    }
  } catch (const std::exception& error) {
    abort(error.what());
  }
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
  while (!stopping_ && !is_aborted()) {
    std::size_t happened = take_launches();
    happened += transport_.progress();
    happened += advance();
    report_finished();
    if (happened == 0) {
      transport_.wait(rest_until(next_due()));
    }
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
