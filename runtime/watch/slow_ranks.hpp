// How much longer slow ranks compute than healthy ones would, and for which batch.
//
// Model. A healthy rank computes in a step for fixed + per_sample · samples, by its profile. The
// two figures of a slow rank need not have grown by the same factor. What does not depend on the
// batch (the optimiser, a layer's update) may be most of its time, once it has few samples. One
// batch gives only one factor, which is then used for both figures. When a plan has given the rank
// another batch, its time with that one is the second point of a line. The line passes through the
// later of the two points and costs no less per sample than a healthy rank does.
//
// All times are ratios: of a rank's time to its profile's, by the median of the same of the healthy
// ranks. So a slowdown of the whole machine cancels out, and only the shape of a profile matters.
//
// Pure logic. O(ranks) per call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/ids.hpp"

namespace rackrail::runtime {

/// Seconds of a step that a rank computes.
struct ComputeLine {
  double fixed = 0;
  double per_sample = 1;
  double at(std::int64_t samples) const {
    return fixed + per_sample * static_cast<double>(samples);
  }
};

/// A rank's time for a step of so many samples, by that of a well one.
struct BatchFactor {
  std::int64_t samples = 0;
  double factor = 1;
  bool operator==(const BatchFactor&) const = default;
};

/// Of slow ranks: one or two batches each, the latest last.
using BatchFactors = std::map<Rank, std::vector<BatchFactor>>;

/// The line of a rank with these factors, which has the line `well` by its profile. `factors` must
/// not be empty.
ComputeLine slow_line(const std::vector<BatchFactor>& factors, const ComputeLine& well);

/// What a rank took to compute a step.
struct ComputedStep {
  std::int64_t samples = 0;
  double seconds = 0;
};

class SlowRanks {
 public:
  /// `profile`: of a rank that is well; only the ratio of its two figures counts. Empty, or without
  /// a time: steps take time in proportion to their samples.
  explicit SlowRanks(std::function<ComputeLine(Rank)> profile) : profile_(std::move(profile)) {}

  /// Ranks are slow by these factors, whatever was known of them, or well (1); `steps` are the
  /// latest of all ranks.
  void set(const std::map<Rank, double>& factors, const std::map<Rank, ComputedStep>& steps);
  /// The steps of other batches: ranks whose time with them is not what was assumed. Each has
  /// another factor from now on, for the batch that it has now.
  std::vector<Rank> refine(const std::map<Rank, ComputedStep>& steps);

  bool is_slow(Rank rank) const { return factors_.contains(rank); }
  /// For a step of so many samples; 1 of a well rank.
  double factor(Rank rank, std::int64_t samples) const;
  const BatchFactors& factors() const { return factors_; }

 private:
  ComputeLine profile_of(Rank rank) const;
  std::map<Rank, double> ratios(const std::map<Rank, ComputedStep>& steps) const;

  std::function<ComputeLine(Rank)> profile_;
  BatchFactors factors_;
  std::map<Rank, double> ratios_;  ///< of slow ranks, where their latest factor was found
};

}  // namespace rackrail::runtime
