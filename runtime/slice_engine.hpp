// The rules of plan/transfer_graph.hpp at work for one rank: what is encoded, sent, decoded and
// added when, for all buckets that are under way. One thread uses it (the executor's progress
// thread), from whose transport it takes messages; only the residuals may be read from others.
//
// State of a bucket of one step, a run (bucket_run.hpp): for each slice of each local transfer the
// number of things that must be done before it. A slice that is done lowers the counts of its
// dependents; those that reach zero are queued, and drain() works through the queues, so no chain
// of dependencies is ever a chain of calls. Per destination and route, slices leave in the order of
// transfer ids within a run.
//
// Rails. Slices go over the rail of their route (rails.hpp). Each rail of a destination has a
// window of its own, so that a slow one does not hold up the others.
//
// Urgency. Whenever there is room in a window, or something received may be applied,
// the most urgent run has its turn: of the earlier step, then of the lower Bucket::priority, then
// of the bucket launched first by the plan. So a bucket that is needed earlier overtakes what
// others have not given to the transport yet; what is in the window goes first.
//
// Plain slices are sent straight from the gradient, and count as read only when the transport has
// completed them: until then nothing that depends on them may write there. Encoded slices have
// memory of their own and count as read at once.
//
// Cost: O(1) per slice and dependency, plus O(runs · routes) to look for the next slice to a
// destination.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/bucket_program.hpp"
#include "runtime/bucket_run.hpp"
#include "runtime/codec.hpp"
#include "runtime/execution_ledger.hpp"
#include "runtime/executor.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/peer_pulses.hpp"
#include "runtime/rails.hpp"
#include "runtime/residual_limit.hpp"
#include "runtime/send_pacer.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

class SliceEngine {
 public:
  /// Takes over the transport's handlers until it is destroyed. Keeps all references.
  SliceEngine(const plan::Plan& plan, Rank self, Transport& transport,
              const ExecutorOptions& options, ExecutionLedger& ledger);
  ~SliceEngine();
  SliceEngine(const SliceEngine&) = delete;
  SliceEngine& operator=(const SliceEngine&) = delete;

  /// Forgets slices of earlier steps. `call`: PlanExecutor::set_call(). Throws RuntimeFailure where
  /// a slice that is here already is of another.
  void begin_step(std::uint32_t step, std::uint32_t call = 0);
  /// Throws MissedPeerError when the bucket needs a peer that is gone.
  void start(BucketId bucket, std::span<float> data);
  /// Does what has become possible. Call after Transport::progress(), which itself throws
  /// MissedPeerError when a peer that is needed is lost, and RuntimeFailure for slices that no peer
  /// with the same plan would send.
  void drain();
  /// Lets peers know that this rank is there (ExecutorOptions::pulse). Throws MissedPeerError when
  /// one of them has been silent for too long, whether it is needed just now or not.
  void watch_peers() { pulses_.beat(); }
  /// When something that is held to a rate may leave next, if anything is.
  std::optional<SendPacer::Clock::time_point> next_due() const { return pacer_.next_due(); }
  /// Buckets of the current step that ended since the last call.
  std::vector<BucketId> take_finished();

  /// Releases all gradients and ignores everything from now on. Sends in progress may still read
  /// gradients as long as borrowed() is not 0; Transport::progress() completes them.
  void halt();
  std::size_t borrowed() const { return borrowed_; }

  Residuals residuals() const;
  void set_residuals(Residuals residuals);

  /// What the user should know of how slices go, from the start.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct EarlySlice;
  struct FreedSlice;

  /// Lets completions find out that the engine is gone.
  struct Anchor {
    SliceEngine* engine = nullptr;
  };

  void find_rails();
  void on_slice(Rank source, const SliceHeader& header, std::span<const std::byte> payload);
  void require_same_call(Rank source, const SliceHeader& header) const;
  void on_peer_error(Rank peer, const std::string& reason);
  void on_sent(BucketRun::Key key, std::uint32_t transfer, std::uint32_t slice, bool was_borrowed,
               ExecutionLedger::Clock::time_point started);
  std::uint32_t checked(Rank source, const SliceHeader& header,
                        std::span<const std::byte> payload) const;
  void keep_for_later(Rank source, const SliceHeader& header, std::span<const std::byte> payload);
  void accept(BucketRun& run, Rank source, const SliceHeader& header,
              std::span<const std::byte> payload);
  void apply(BucketRun& run, std::uint32_t index, std::uint32_t k,
             std::span<const std::byte> payload);
  void add(BucketRun& run, std::uint32_t index, std::uint32_t k, std::span<const std::byte> payload,
           std::span<float> values);
  void pump(Rank destination);
  bool send_next(BucketRun& run, Rank destination);
  bool send_next(BucketRun& run, Rank destination, std::size_t route);
  SharedPayload encode(BucketRun& run, const LocalTransfer& t, const plan::ElementRange& part,
                       std::span<float> values);
  void signal(BucketRun& run, std::uint32_t index, std::uint32_t k);
  void unblock(BucketRun& run, std::uint32_t index, std::uint32_t k);
  void close_slice(BucketRun& run);
  void want_pump(Rank destination);
  void end(BucketRun::Key key);
  /// FP32 while compression warms up.
  const Codec& codec_of(BucketId bucket, std::uint32_t step, const LocalTransfer& t) const;
  const Codec& codec_of(const BucketRun& run, const LocalTransfer& t) const;
  bool is_lossy(const BucketRun& run, const LocalTransfer& t) const;
  std::size_t bytes_per_step() const;
  std::vector<std::vector<std::uint32_t>> paced_lanes(const BucketProgram& program);

  const plan::Plan& plan_;
  const Rank self_;
  Transport& transport_;
  const ExecutorOptions options_;
  ExecutionLedger& ledger_;
  const std::uint64_t plan_id_;
  std::vector<std::string> notes_;
  const PlanRails rails_;
  std::vector<BucketProgram> programs_;  ///< by bucket
  /// By bucket, destination and route, as BucketProgram::sends_to.
  std::vector<std::vector<std::vector<std::uint32_t>>> rail_of_;
  std::vector<std::vector<std::unique_ptr<Codec>>> codecs_;  ///< by schedule and codec index
  const std::size_t most_buffered_;                          ///< bytes of early slices
  std::shared_ptr<Anchor> anchor_;

  std::optional<std::uint32_t> step_;
  std::uint32_t call_ = 0;  ///< of the step
  std::map<BucketRun::Key, std::unique_ptr<BucketRun>> runs_;
  std::vector<BucketRun*> by_urgency_;  ///< all of runs_, the most urgent first
  std::set<std::uint32_t> ended_;       ///< buckets of this step
  std::vector<BucketId> finished_;
  std::map<BucketRun::Key, std::vector<EarlySlice>> early_;
  std::size_t buffered_ = 0;
  std::vector<std::optional<MissedPeer>> lost_;  ///< by peer
  PeerPulses pulses_;
  std::vector<std::vector<int>> in_flight_;  ///< by destination and rail
  SendPacer pacer_;
  /// Numbers of the pacer, by bucket, destination and route.
  std::vector<std::vector<std::vector<std::uint32_t>>> paced_lanes_;
  std::size_t borrowed_ = 0;  ///< sends that read gradients
  std::deque<Rank> to_pump_;
  std::vector<char> pump_is_queued_;  ///< by destination
  std::deque<FreedSlice> to_apply_;   ///< the most urgent first
  bool halted_ = false;

  mutable std::mutex residual_mutex_;
  Residuals residuals_;
};

}  // namespace rackrail::runtime
