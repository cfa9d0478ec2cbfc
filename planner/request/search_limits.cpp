#include "planner/request/search_limits.hpp"

#include <algorithm>
#include <iterator>

#include "base/work.hpp"

namespace rackrail::planner {

namespace {

/// Work of a search on so many ranks, about 0.2 us each on a usual core: 1 to 3 s up to 64 ranks, 8
/// s up to 256, 20 s up to 1,024. Between them in proportion; more ranks add none.
double work_of(std::size_t ranks) {
  struct WorkOfRanks {
    std::size_t ranks;
    double work;
  };
  constexpr WorkOfRanks kWork[] = {{0, 4e6}, {64, 7.2e6}, {256, 90e6}, {1024, 150e6}};
  const auto more =
      std::ranges::find_if(kWork, [ranks](const WorkOfRanks& row) { return ranks < row.ranks; });
  if (more == std::end(kWork)) {
    return std::prev(more)->work;
  }
  const WorkOfRanks& fewer = *std::prev(more);
  const double share =
      static_cast<double>(ranks - fewer.ranks) / static_cast<double>(more->ranks - fewer.ranks);
  return fewer.work + share * (more->work - fewer.work);
}

}  // namespace

QuickLimit::QuickLimit(std::size_t ranks, double share)
    : begin_(Work::done()), most_(static_cast<std::int64_t>(share * work_of(ranks))) {}

void QuickLimit::found(Duration time) {
  if (bound_ > Duration()) {
    found_gap(time / bound_ - 1);
  }
}

void QuickLimit::found_gap(double gap) { gap_ = std::min(gap_.value_or(gap), gap); }

bool QuickLimit::is_reached() const { return left() <= 0; }

std::int64_t QuickLimit::left() const {
  if (gap_ && *gap_ <= kNearEnough) {
    return 0;
  }
  // From this distance to the bound on all of it is worth while, nearer a part in proportion.
  constexpr double kMuchToGain = 0.05;
  const double worth = gap_ ? std::min(1.0, *gap_ / kMuchToGain) : 1.0;
  return static_cast<std::int64_t>(worth * static_cast<double>(most_)) - (Work::done() - begin_);
}

}  // namespace rackrail::planner
