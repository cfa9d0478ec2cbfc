#include "cli/time_budget.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::cli {

namespace {
constexpr int kLeastReserve = 8;  // the budget over the reserve
constexpr int kMostReserve = 5;
}  // namespace

TimeBudget::TimeBudget(Clock::duration budget, std::function<Clock::time_point()> now)
    : now_(std::move(now)), budget_(budget), end_(now_() + budget), last_(now_()) {}

bool TimeBudget::is_used_up() {
  const Clock::time_point now = now_();
  longest_ = std::max(longest_, now - last_);
  last_ = now;
  const Clock::duration reserve =
      std::max(budget_ / kLeastReserve, std::min(2 * longest_, budget_ / kMostReserve));
  was_used_up_ = was_used_up_ || end_ - now <= reserve;
  return was_used_up_;
}

}  // namespace rackrail::cli
