// At which rate ranks get what others send them, from what each measured in its latest steps.
//
// Pure logic; O(sources) per measurement, memory for kLatestSteps measurements of each rank.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "runtime/coordinator/job_status.hpp"
#include "runtime/coordinator/progress.hpp"

namespace rackrail::runtime {

class PairRates {
 public:
  static constexpr std::size_t kLatestSteps = 5;

  void add(const StepMeasurement& step);
  void clear() { steps_.clear(); }
  /// Of all pairs that moved something, the slowest first.
  std::vector<PairRate> rates() const;

 private:
  std::map<Rank, std::deque<std::vector<PairTraffic>>> steps_;  ///< what was received, by rank
};

}  // namespace rackrail::runtime
