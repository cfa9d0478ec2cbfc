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
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "plan/plan.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/peer_watch.hpp"
#include "runtime/plan_executor.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

struct ExecutorOptions {
  std::uint32_t epoch = 0;
  bool record_timeline = false;
  /// Sends in flight per destination and rail before further ones wait.
  int send_window = 8;
  /// Whether peers are watched by their pulses; all ranks of an epoch have the same. None: a peer
  /// is missed only where the transport says so.
  std::optional<PulseOptions> pulse;
  /// Called on the executor's thread as soon as a peer is missed; waits throw up to a second later,
  /// once sends are done with the gradients. May be empty; must not throw.
  std::function<void(const MissedPeer& peer)> on_missed;
};

class Executor final : public PlanExecutor {
 public:
  /// Keeps references: plan and transport must outlive it; the transport must be connected and is
  /// used by the executor's thread alone from now on.
  Executor(const plan::Plan& plan, Rank self, Transport& transport, const ExecutorOptions& options);
  ~Executor() override;

  void begin_step(std::uint32_t step) override;
  void set_call(std::uint32_t call) override;
  void launch(BucketId bucket, std::span<float> data) override;
  void wait(BucketId bucket) override;
  void wait_all() override;

  void abort(const std::string& reason) override;
  bool aborted() const override;

  ExecutorStatistics statistics() const override;
  std::vector<plan::TimelineEvent> take_timeline() override;
  Residuals residuals() const override;
  void set_residuals(Residuals residuals) override;

  /// What the user should know of how this rank's gradients go: of the plan's adapters that this
  /// machine lacks.
  const std::vector<std::string>& notes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::runtime
