#include "planner/search_effort.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/work.hpp"

namespace rackrail::planner {

namespace {

// Work of a search on few ranks, and what each rank adds: about 1 s, and 1 s for each 80 of them.
constexpr std::int64_t kWorkOfAny = 4'000'000;
constexpr std::int64_t kWorkOfRank = 50'000;
constexpr std::size_t kMostRanks = 1024;  // that add any
// From this distance to the bound on all of it is worth while, nearer a part in proportion.
constexpr double kFarFromBound = 0.05;

}  // namespace

SearchEffort parse_search_effort(std::string_view text) {
  if (text == "quick") {
    return SearchEffort::kQuick;
  }
  if (text == "thorough") {
    return SearchEffort::kThorough;
  }
  throw ConfigError(ErrorContext{"", "search", fmt::format("'{}'", text), "quick or thorough"});
}

QuickLimit::QuickLimit(std::size_t ranks, double share)
    : begin_(Work::done()),
      most_(static_cast<std::int64_t>(
          share * static_cast<double>(kWorkOfAny + kWorkOfRank * static_cast<std::int64_t>(std::min(
                                                                     ranks, kMostRanks))))) {}

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
  const double worth = gap_ ? std::min(1.0, *gap_ / kFarFromBound) : 1.0;
  return static_cast<std::int64_t>(worth * static_cast<double>(most_)) - (Work::done() - begin_);
}

}  // namespace rackrail::planner
