// How far a search goes.
//
// A quick search ends where what can still be gained is not worth the wait: at once where the best
// plan is near its lower bound, else after an amount of work (base/work.hpp) that grows with the
// number of ranks and shrinks with the distance to the bound. It counts work and reads no clock, so
// the same input gives the same plan everywhere. A thorough search goes on until nothing is left to
// try.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"

namespace rackrail::planner {

enum class SearchEffort : std::uint8_t { kQuick, kThorough };

/// "quick" or "thorough"; throws ConfigError for anything else.
SearchEffort parse_search_effort(std::string_view text);

/// A quick search ends where the best takes no more than this share longer than the bound.
inline constexpr double kNearEnough = 0.005;

/// When a quick search of this thread ends, which begins now.
class QuickLimit {
 public:
  /// `share`: of the work that a whole search on so many ranks may take.
  explicit QuickLimit(std::size_t ranks, double share = 1);

  /// Nothing that is looked for can take less.
  void set_bound(Duration bound) { bound_ = bound; }
  /// What was found takes so long.
  void found(Duration time);
  /// The same where only the distance to its bound is known: 0.01 is 1 %.
  void found_gap(double gap);
  bool is_reached() const;
  /// Work up to the limit.
  std::int64_t left() const;

 private:
  std::int64_t begin_;
  std::int64_t most_;
  Duration bound_;
  std::optional<double> gap_;  ///< of the best, where there is a bound
};

}  // namespace rackrail::planner
