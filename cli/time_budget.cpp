#include "cli/time_budget.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::cli {

TimeBudget::TimeBudget(Clock::duration budget, std::function<Clock::time_point()> now)
    : now_(std::move(now)), end_(now_() + budget), last_(now_()) {}

bool TimeBudget::is_used_up() {
  const Clock::time_point now = now_();
  longest_ = std::max(longest_, now - last_);
  last_ = now;
  was_used_up_ = was_used_up_ || end_ - now <= 2 * longest_;
  return was_used_up_;
}

}  // namespace rackrail::cli
