// Timing a plan's collectives on the ranks of a launched job, without any training around them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"
#include "runtime/launch/environment.hpp"
#include "runtime/launch/job_settings.hpp"

namespace rackrail::runtime {

/// How often a bucket of this size is reduced: 6 to 101 times, less often the larger it is: of
/// small ones shapers let many pass before they hold them to their rate. Equal on
/// all ranks.
int repetitions(Bytes bucket);

struct CollectiveJobOptions {
  std::string transport = "ucx";
  Duration rendezvous_deadline = 60_s;
  std::optional<GpuSettings> gpu;  ///< buckets lie on GPUs; none: on the host
  /// Called on each rank with the time of a bucket on it, as soon as that is measured.
  std::function<void(BucketId, Duration)> on_measured = [](BucketId, Duration) {};
  /// The coordinator is that of run_local_collectives(), in another process.
  bool is_led = false;
};

/// Called by every rank with the same plan. Reduces each bucket alone, some times in a row, after
/// two rounds that are not counted; the first of them has known values and must give their exact
/// sum, or nearly so with a codec that rounds (one that leaves values out does not). Rank 0 runs
/// the coordinator, and gets the time of each bucket: trainer::time_of_each() of its repetitions on
/// the rank where that is largest. The others get nothing, and neither does a rank 0 that is led.
/// Throws RuntimeFailure when a rank is lost, a sum is wrong or the transport cannot be used,
/// ConfigError for a token that is missing.
std::optional<std::vector<Duration>> run_collectives(const plan::Plan& plan,
                                                     const LaunchEnvironment& launch,
                                                     const CollectiveJobOptions& options);

struct LocalCollectives {
  std::vector<Duration> times;  ///< by bucket, as run_collectives()
  int interrupted_by = 0;       ///< a signal, and there are no times; 0: none
};

/// Leads a job whose ranks are processes of this machine. `words` is the command of each, which
/// calls run_collectives() with `is_led`; what they need to know else is in their environment.
/// Blocks until the end; SIGINT and SIGTERM are handled meanwhile. Throws as above, and when a rank
/// cannot be started.
LocalCollectives run_local_collectives(const plan::Plan& plan,
                                       const std::vector<std::string>& words,
                                       const CollectiveJobOptions& options);

}  // namespace rackrail::runtime
