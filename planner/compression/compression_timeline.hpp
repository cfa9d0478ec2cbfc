// One training step as the compression search sees it: a line of jobs over a few resources.
//
// Bucket j is ready at r_j and is moved by one of several options. Option o takes `alone` on an
// idle cluster, and meanwhile occupies resource q (a link, a pair of ranks, the codec or the
// reduction stream of a rank) for busy_q, from lead_q after its start on. Buckets leave in the
// order in which they are ready and resources are work-conserving, so with e_q the time at which q
// is free, and over the resources that o uses in the order of their leads (those of one lead
// together),
//
//   s_q = max(e_q, r_j + D + lead_q, s_p + lead_q − lead_p for each p before it),
//   e_q ← s_q + busy_q,  done ← max(done, s_q + alone − lead_q),  D ← D + delay
//
// where D is what codecs have delayed backward so far (only where they share a processor with it),
// and an option that uses nothing is done at r_j + D + alone. The step is max(done, compute end +
// D) + optimiser. A single bucket takes what it takes alone, a long queue what its busiest resource
// needs; between the two a bucket fills the gaps that the one before it leaves, as far as it can
// have come by then. What this leaves out: two buckets that share a link at once slow each other
// down, here the first one goes first; and a link that is used twice, with something else between,
// counts as used once. Against the simulator: tests/integration/planner/compression_test.cpp.
//
// The recurrence is linear in (max, +): with a choice fixed from bucket j on, the step is
// max(done, max_q(e_q + tail_q), D + tail_D), so the change of one bucket costs O(resources). The
// search stands on that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"

namespace rackrail::planner {

/// How one bucket may be moved.
struct TimelineOption {
  Duration alone;              ///< of the collective on the idle cluster
  std::vector<Duration> busy;  ///< by resource
  std::vector<Duration> lead;  ///< by resource; lead + busy ≤ alone is not required
  Duration delay;              ///< by which it moves all that backward computes after it
  double harm = 0;             ///< of the accuracy; only compared with other options
};

struct TimelineBucket {
  Duration ready;  ///< from the start of the step, on the latest rank; never decreases
  std::vector<TimelineOption> options;
};

struct TimelineProblem {
  std::size_t resources = 0;
  std::vector<TimelineBucket> buckets;  ///< in launch order
  Duration compute_end;                 ///< forward and backward, on the latest rank
  Duration optimizer;
};

/// An option per bucket.
using Assignment = std::vector<std::uint32_t>;

/// A problem laid out for evaluation, in picoseconds. Resources that are never busier than another
/// one are left out.
class Timeline {
 public:
  using Time = std::int64_t;

  /// Throws PlanError when a bucket has no option, a list has the wrong length, a time is negative
  /// or buckets are not in the order in which they are ready.
  explicit Timeline(const TimelineProblem& problem);

  std::size_t bucket_count() const { return ready_.size(); }
  std::size_t option_count(std::size_t bucket) const { return first_[bucket + 1] - first_[bucket]; }
  std::size_t resource_count() const { return resources_; }  ///< that are left
  Duration alone(std::size_t bucket, std::uint32_t option) const {
    return Duration(jobs_[first_[bucket] + option].alone);
  }
  double harm(std::size_t bucket, std::uint32_t option) const {
    return harm_[first_[bucket] + option];
  }
  double harm(const Assignment& assignment) const;
  Duration step(const Assignment& assignment) const;

  /// After some buckets: when each resource is free, then D, then done; `width()` numbers.
  using State = std::span<Time>;
  using ConstState = std::span<const Time>;
  std::size_t width() const { return resources_ + 2; }
  void start(State state) const;
  void advance(ConstState before, std::size_t bucket, std::uint32_t option, State after) const;
  /// What follows: the step is max over i of (state[i] + tail[i]).
  void end(State tail) const;
  /// The tail before `bucket` from that after it. `after` and `before` may be the same.
  void retreat(ConstState after, std::size_t bucket, std::uint32_t option, State before) const;
  static Time join(ConstState state, ConstState tail);

 private:
  struct Job {
    Time alone;
    Time delay;
  };
  /// One resource that an option uses.
  struct Use {
    std::uint32_t resource;
    Time lead;
    Time busy;
  };
  std::span<const Use> uses(std::size_t job) const {
    return std::span(uses_).subspan(first_use_[job], first_use_[job + 1] - first_use_[job]);
  }
  std::size_t resources_ = 0;
  std::vector<Time> ready_;
  std::vector<std::size_t> first_;      ///< by bucket: its first option among all
  std::vector<Job> jobs_;               ///< by option
  std::vector<Use> uses_;               ///< by option, in the order of their leads
  std::vector<std::size_t> first_use_;  ///< by option
  std::vector<double> harm_;
  Time compute_end_ = 0;
  Time optimizer_ = 0;
};

}  // namespace rackrail::planner
