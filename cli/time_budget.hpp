// When to stop a search that has so much time.
//
// A search asks often: between pieces of work that it does not interrupt (the first plan, the trees
// of a forest) and, every few milliseconds, within its simulations and while the transfers of a
// schedule are made. What remains after it stops, to check and write the plan, is thought to take
// no longer than two of the longest pieces so far, on this machine as busy as it is, and has a
// reserve of an eighth to a fifth of the budget: one long piece early on must not end a search that
// could still use half of its time. A piece that takes longer than that reserve makes the whole as
// much longer.
#pragma once

#include <chrono>
#include <functional>

namespace rackrail::cli {

class TimeBudget {
 public:
  using Clock = std::chrono::steady_clock;

  /// Of a search that begins now. `now` is for tests.
  explicit TimeBudget(Clock::duration budget, std::function<Clock::time_point()> now = Clock::now);

  /// Whether to stop; to be asked between pieces of work. Once true, always true.
  bool is_used_up();
  bool is_half_used_up() const { return now_() >= end_ - budget_ / 2; }
  /// What is_used_up() said last.
  bool was_used_up() const { return was_used_up_; }

 private:
  std::function<Clock::time_point()> now_;
  Clock::duration budget_;
  Clock::time_point end_;
  Clock::time_point last_;  ///< when it was asked last
  Clock::duration longest_{};
  bool was_used_up_ = false;
};

}  // namespace rackrail::cli
