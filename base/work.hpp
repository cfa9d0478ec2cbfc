// Work that was done, counted instead of timed, and its end before it is done.
//
// A search that ends after so much work gives the same answer on every machine; one that ends after
// so much time does not. What takes long counts what it does: a simulated event, a flow whose rate
// is looked for, a transfer that is added to a graph, a link that is looked at. Each is a few
// tenths of a microsecond on a usual core. Counts are of the thread: a search runs in one.
//
// What makes schedules counts by step() instead of add(). It ends there, by an exception, once the
// StoppableWork around it says so, and needs no parameter for that.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

namespace rackrail {

/// Work was not done to its end: the StoppableWork around it said so.
class WorkStopped final : public std::exception {
 public:
  const char* what() const noexcept override { return "stopped before it was done"; }
};

class StoppableWork;

class Work {
 public:
  static std::int64_t done() { return done_; }
  static void add(std::uint64_t steps) { done_ += static_cast<std::int64_t>(steps); }
  /// The same; asks whether to stop every so many steps, and then throws WorkStopped.
  static void step(std::uint64_t steps = 1) {
    add(steps);
    if (around_ != nullptr && done_ >= next_question_) {
      ask();
    }
  }
  /// Asks at once.
  static void ask();

 private:
  friend class StoppableWork;
  static constexpr std::int64_t kStepsBetweenQuestions = 10'000;

  static inline thread_local std::int64_t done_ = 0;
  static inline thread_local const StoppableWork* around_ = nullptr;
  static inline thread_local std::int64_t next_question_ = 0;
};

/// While it lives, this thread's work ends once `stop` says so. Empty: work goes on to its end, as
/// it does without any. Of several the innermost counts.
class StoppableWork {
 public:
  explicit StoppableWork(std::function<bool()> stop)
      : stop_(std::move(stop)),
        outer_(std::exchange(Work::around_, this)),
        next_of_outer_(std::exchange(Work::next_question_, Work::done_)) {}
  StoppableWork(const StoppableWork&) = delete;
  StoppableWork& operator=(const StoppableWork&) = delete;
  ~StoppableWork() {
    Work::around_ = outer_;
    Work::next_question_ = next_of_outer_;
  }

 private:
  friend class Work;
  std::function<bool()> stop_;
  const StoppableWork* outer_;
  std::int64_t next_of_outer_;
};

inline void Work::ask() {
  next_question_ = done_ + kStepsBetweenQuestions;
  if (around_ != nullptr && around_->stop_ && around_->stop_()) {
    throw WorkStopped();
  }
}

}  // namespace rackrail
