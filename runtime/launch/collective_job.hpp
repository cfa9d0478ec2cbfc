// Timing a plan's collectives on the ranks of a launched job, without any training around them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "runtime/launch/environment.hpp"

namespace rackrail::runtime {

/// How often a bucket of this size is reduced: 3 to 30 times, less often the larger it is. Equal on
/// all ranks.
int repetitions(Bytes bucket);

struct CollectiveJobOptions {
  std::string transport = "ucx";
  Duration rendezvous_deadline = 60_s;
};

/// Called by every rank with the same plan. Reduces each bucket alone, some times in a row, after
/// two rounds that are not counted; the first of them has known values and must give their exact
/// sum, or nearly so with a codec that rounds (one that leaves values out does not). Rank 0 runs
/// the coordinator, and gets the time of each bucket: the median of its repetitions on the rank
/// where that is largest. The others get nothing. Throws RuntimeFailure when a rank is lost, a sum
/// is wrong or the transport cannot be used, ConfigError for a token that is missing.
std::optional<std::vector<Duration>> run_collectives(const plan::Plan& plan,
                                                     const LaunchEnvironment& launch,
                                                     const CollectiveJobOptions& options);

}  // namespace rackrail::runtime
