// How far searches go: what counts as a difference, how large schedules may be, and when a quick
// search ends.
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

#include "base/units.hpp"

namespace rackrail::planner {

/// Shares of a time. A lighter codec is preferred when it costs less than the first; nothing is
/// looked for that gains less than the second, nor is beyond it from a bound; times that differ by
/// no more than the third count as equal.
inline constexpr double kWorthwhile = 0.001;
inline constexpr double kNearEnough = 0.005;
inline constexpr double kSameTime = 0.01;

/// Transfers of a whole step that is simulated beside others, or exactly, from kVeryManyRanks on
/// (CostModel::followed_transfers): more take ten seconds or gigabytes.
inline constexpr std::uint64_t kMostTransfersOfStep = 2'000'000;
/// Of one schedule among many: of a bucket of a step, and where ranks are very many.
inline constexpr std::size_t kMostTransfersOfBucket = 45'000;
inline constexpr std::size_t kMostTransfersOfMany = 65'000;

/// What has its own limit of work, in shares of that of a whole search on so many ranks. A table by
/// size has several parts; one that is made for a plan has little of each.
struct WorkShare {
  static constexpr double kWhole = 1;
  static constexpr double kFinish = 0.5;     ///< of a search that ended early
  static constexpr double kDivision = 0.25;  ///< of large buckets of a plan
  static constexpr double kTableForms = 0.4;
  static constexpr double kTableRows = 1.4;
  static constexpr double kTableCrossovers = 0.2;
  static constexpr double kTableOfPlan = 0.15;  ///< times those of a table
};

/// When a quick search of this thread ends, which begins now.
class QuickLimit {
 public:
  explicit QuickLimit(std::size_t ranks, double share = WorkShare::kWhole);

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
