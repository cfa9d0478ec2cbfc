// A figure that is measured once a step: what it was at first, and what it is now.
//
// The reference is the first values and, as long as all is calm, what leaves the window of the
// latest ones, up to a limit: so it is the better the longer the job runs, and a change does not
// become part of it. Medians, so that single steps do not count; the spread is the median distance
// from the median of the logarithm, as a standard deviation (times 1.4826).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <vector>

namespace rackrail::runtime {

/// The middle value, the lower of two middle ones; `values` must not be empty.
inline double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Numbers of steps.
struct SampleLimits {
  std::size_t reference = 6;  ///< at least
  std::size_t most = 48;      ///< in the reference, at most
  std::size_t window = 5;     ///< latest
};

class Samples {
 public:
  /// `value` is positive; `is_calm`: what is old enough may become part of the reference.
  void add(double value, const SampleLimits& limits, bool is_calm) {
    latest_.push_back(value);
    if (++count_ <= limits.reference) {
      take(value);
    }
    if (latest_.size() > limits.window) {
      const bool is_in_reference = count_ <= limits.reference + limits.window;
      if (is_calm && !is_in_reference && first_.size() < limits.most) {
        take(latest_.front());
      }
      latest_.pop_front();
    }
  }

  std::size_t reference_size() const { return first_.size(); }
  /// Of the reference; 0 without any value.
  double before() const { return before_; }
  /// Of the logarithms of the reference.
  double spread() const { return spread_; }
  /// Of the latest; there must be a value.
  double now() const { return lower_median({latest_.begin(), latest_.end()}); }

 private:
  void take(double value) {
    constexpr double kDeviations = 1.4826;  // of a normal distribution
    first_.push_back(value);
    before_ = lower_median(first_);
    std::vector<double> distances;
    for (const double one : first_) {
      distances.push_back(std::abs(std::log(one / before_)));
    }
    spread_ = kDeviations * lower_median(std::move(distances));
  }

  std::vector<double> first_;
  std::deque<double> latest_;
  std::size_t count_ = 0;
  double before_ = 0;
  double spread_ = 0;
};

}  // namespace rackrail::runtime
