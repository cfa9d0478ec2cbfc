// What a job asks of whatever executes its plan on one rank: the executor of runtime/executor.hpp
// for gradients on the host, that of runtime/nccl/plan_executor.hpp for those on a GPU.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "plan/plan.hpp"

namespace rackrail::runtime {

/// What one peer sent to this rank.
struct ArrivedTraffic {
  Bytes bytes;
  Duration busy;  ///< while some of it was under way (runtime/arrival_timing.hpp)
};

/// Since the executor was made.
struct ExecutorStatistics {
  Bytes sent;
  std::uint64_t messages = 0;
  std::map<std::pair<Rank, Rank>, Bytes> bytes_by_pair;  ///< what this rank sent, by (self, dst)
  Duration encode_time;
  Duration decode_time;
  /// Processor time of the thread that moves messages, encodes, decodes and adds; none where there
  /// is no such thread.
  Duration progress_cpu_time;
  std::map<Rank, ArrivedTraffic> arrived;  ///< by source
  std::size_t peak_buffered_bytes = 0;     ///< slices kept for buckets that were not ready
};

/// Error-feedback state of one rank: for checkpoints. Keys are stable names of the encoding place,
/// and these with kNormsSuffix (residual_limit.hpp).
using Residuals = std::map<std::string, std::vector<float>>;

/// PlanExecutor::set_call() of an array without elements.
inline constexpr std::uint32_t kEmptyCall = 0xffffffff;

class PlanExecutor {
 public:
  virtual ~PlanExecutor() = default;
  PlanExecutor() = default;
  PlanExecutor(const PlanExecutor&) = delete;
  PlanExecutor& operator=(const PlanExecutor&) = delete;

  /// Buckets of step s may be launched after begin_step(s). Throws RuntimeFailure unless steps
  /// count up by one and every bucket launched in the step before is done.
  virtual void begin_step(std::uint32_t step) = 0;
  /// What the steps after this sum, as a number that is the same on all ranks: how many elements
  /// the caller gave, where the plan alone does not say it; 0: the plan's buckets. Between steps.
  /// Where slices are messages, the first of another number ends the job, with both numbers.
  virtual void set_call(std::uint32_t /*call*/) {}
  /// The bucket's local gradient is in `data` (Bucket::elements floats), which becomes the sum over
  /// all ranks in place; it must not be touched until wait(bucket) or wait_all() has returned or
  /// thrown. Throws RuntimeFailure for a bucket that the plan lacks, another size, or a second
  /// launch in one step.
  virtual void launch(BucketId bucket, std::span<float> data) = 0;
  /// Block until the bucket (every bucket that was launched in this step) is done on this rank.
  /// Throw PeerLostError once the executor was aborted, MissedPeerError where it is known by whom:
  /// `data` is then unspecified, earlier steps are whole. Nothing is written into `data` after
  /// that, and nothing reads it but sends that a peer has not taken within a second.
  virtual void wait(BucketId bucket) = 0;
  virtual void wait_all() = 0;

  /// Makes every present and later wait throw PeerLostError(reason). From any thread; only the
  /// first reason counts.
  virtual void abort(const std::string& reason) = 0;
  virtual bool aborted() const = 0;

  virtual ExecutorStatistics statistics() const = 0;
  virtual std::vector<plan::TimelineEvent> take_timeline() = 0;
  /// Between steps only. Setting none forgets what codecs left out of earlier steps.
  virtual Residuals residuals() const = 0;
  virtual void set_residuals(Residuals residuals) = 0;
};

}  // namespace rackrail::runtime
