// The executor: walks the transfer graphs of a plan for one rank, and nothing else.
//
// One progress thread per executor encodes, sends, receives, decodes and adds by the rules of
// plan/transfer_graph.hpp while the caller's thread goes on with backward. Slices that arrive for a
// bucket whose local gradient is not ready yet are kept until it is. Buckets of one step move at
// the same time; where they compete, slices of the most urgent one go first (Bucket::priority), and
// at equal priorities those of the bucket that the plan has first.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "runtime/peer_watch.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

struct ExecutorOptions {
  std::uint32_t epoch = 0;
  bool record_timeline = false;
  /// Sends in flight per destination before further ones wait.
  int send_window = 8;
  /// Whether peers are watched by their pulses; all ranks of an epoch have the same. None: a peer
  /// is missed only where the transport says so.
  std::optional<PulseOptions> pulse;
};

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
  std::map<Rank, ArrivedTraffic> arrived;  ///< by source
  std::size_t peak_buffered_bytes = 0;     ///< slices kept for buckets that were not ready
};

/// Error-feedback state of one rank: for checkpoints. Keys are stable names of the encoding place.
using Residuals = std::map<std::string, std::vector<float>>;

class Executor {
 public:
  /// Keeps references: plan and transport must outlive it; the transport must be connected and is
  /// used by the executor's thread alone from now on.
  Executor(const plan::Plan& plan, Rank self, Transport& transport, const ExecutorOptions& options);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Buckets of step s may be launched after begin_step(s). Throws RuntimeFailure unless steps
  /// count up by one and every bucket launched in the step before is done.
  void begin_step(std::uint32_t step);
  /// The bucket's local gradient is in `data` (Bucket::elements floats), which becomes the sum over
  /// all ranks in place; it must not be touched until wait(bucket) or wait_all() has returned or
  /// thrown. Throws RuntimeFailure for a bucket that the plan lacks, another size, or a second
  /// launch in one step.
  void launch(BucketId bucket, std::span<float> data);
  /// Block until the bucket (every bucket that was launched in this step) is done on this rank.
  /// Throw PeerLostError once the executor was aborted, MissedPeerError where it is known by whom:
  /// `data` is then unspecified, earlier steps are whole. Nothing is written into `data` after
  /// that, and nothing reads it but sends that a peer has not taken within a second.
  void wait(BucketId bucket);
  void wait_all();

  /// Makes every present and later wait throw PeerLostError(reason). From any thread; only the
  /// first reason counts.
  void abort(const std::string& reason);
  bool aborted() const;

  ExecutorStatistics statistics() const;
  std::vector<plan::TimelineEvent> take_timeline();
  /// Between steps only.
  Residuals residuals() const;
  void set_residuals(Residuals residuals);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::runtime
