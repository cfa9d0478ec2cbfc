// When to stop a search that has so much time.
//
// A search asks between pieces of work that it does not interrupt, which take a millisecond on ten
// GPUs and ten seconds on ten thousand, on this machine as busy as it is. The longest so far is
// what the next one may take, and what it takes to check and write the plan: both have to fit into
// the rest of the budget. What is of another kind than all before (the first plan, or the exact
// simulation of the last) may take longer, and the whole with it.
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
  /// What is_used_up() said last.
  bool was_used_up() const { return was_used_up_; }

 private:
  std::function<Clock::time_point()> now_;
  Clock::time_point end_;
  Clock::time_point last_;  ///< when it was asked last
  Clock::duration longest_{};
  bool was_used_up_ = false;
};

}  // namespace rackrail::cli
