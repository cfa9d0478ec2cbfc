// The worker processes of a local job: started one per rank, ended when they are lost, replaced
// when the job waits for others in their place, and looked after until the job is over.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/launch/signals.hpp"
#include "runtime/launch/spawn.hpp"

namespace rackrail::runtime {

/// Used by the thread that made it; fence() and replace() may be called from any thread. SIGINT and
/// SIGTERM are handled during its lifetime, and end the job.
class LocalWorkers {
 public:
  /// Keeps references.
  LocalWorkers(const JobOptions& options, CoordinatorServer& server, const std::string& token);
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;

  /// Of ranks 0 to count − 1.
  void start_all(std::size_t count);
  /// Its worker is lost and must not come back to life. From any thread.
  void fence(Rank rank) { want({.rank = rank, .is_replaced = false}); }
  /// The same, and another one is started in its place. From any thread.
  void replace(Rank rank) { want({.rank = rank, .is_replaced = true}); }

  /// Until the job is over and no worker is left.
  CoordinatorOutcome wait();
  /// Of every process that a signal ended and this object did not: "rank 2 (pid 77) was killed by
  /// signal 6", with the assertion that failed, if one did. One line each.
  std::vector<std::string> deaths() const;
  /// A signal, or 0.
  int interrupted_by() const { return guard_.received(); }

 private:
  struct LostWorker {
    Rank rank;
    bool is_replaced = false;
  };

  ChildCommand worker_command(const std::string& token) const;
  void start(Rank rank);
  void want(LostWorker lost);
  std::vector<LostWorker> take_lost();
  void end_worker(Rank rank);
  void ended(const ChildEnd& end);
  void finish();
  void explain(AbortReason& reason) const;
  bool is_our_doing(const ChildEnd& end) const;
  std::string name(const ChildEnd& end) const;
  std::string how(const ChildEnd& end) const;

  const JobOptions& options_;
  CoordinatorServer& server_;
  const ChildCommand command_;  ///< of every worker, without its rank
  InterruptGuard guard_;
  std::vector<Rank> ranks_;  ///< by child
  ChildProcesses children_;
  bool has_started_workers_ = false;
  std::optional<ChildEnd> early_end_;
  std::vector<ChildEnd> killed_;  ///< before the job was over
  std::set<std::size_t> ended_by_us_;
  std::map<std::size_t, std::string> failed_assertions_;  ///< by child: the last one it wrote
  std::mutex mutex_;
  std::vector<LostWorker> lost_;  ///< not killed yet; guarded by mutex_
};

}  // namespace rackrail::runtime
