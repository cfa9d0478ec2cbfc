// The coordinator of a job: a gRPC service around Membership.
//
// Everything that happens is a task on one thread of its own, so the membership and the streams
// need no locks; calls that wait (Join) hold no thread. What may take long (writing a manifest, a
// progress bar) runs on a second thread, so that it never delays a heartbeat's answer.
//
// Without certificates (tls.hpp) the connection is not encrypted: the job's token keeps strangers
// out of a job on a network whose lines are trusted, as those between the machines of a cluster
// are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "runtime/coordinator/host_port.hpp"
#include "runtime/coordinator/membership.hpp"
#include "runtime/coordinator/progress.hpp"
#include "runtime/coordinator/regroup.hpp"
#include "runtime/coordinator/tls.hpp"

namespace rackrail::runtime {

struct CoordinatorOptions {
  HostPort listen{"127.0.0.1", 0};     ///< port 0: any free one
  std::string token;                   ///< empty only where nobody from outside can come
  std::optional<TlsCertificates> tls;  ///< only workers that its authority has signed may come
  bool is_network_private = false;     ///< nobody else reads it: no certificates are needed
  MembershipOptions membership;
  std::string plan;         ///< binary form, for all workers
  std::string job_options;  ///< JSON, for all workers
  Duration heartbeat_period = 1_s;

  // Called on one thread, one after another. An exception of on_checkpoint aborts the job.
  /// All ranks have written their part; `files` by rank.
  std::function<void(std::uint32_t step, const std::vector<std::vector<CheckpointFile>>& files)>
      on_checkpoint;
  /// At most ten times per second.
  std::function<void(const JobProgress&)> on_progress;
  /// A plan for those who are left, so that the job goes on without a member that was lost. Empty:
  /// a loss ends the job, as does an exception of it.
  std::function<EpochPlan(const Loss&)> on_loss;
  /// How long the job waits for another worker in the place of one that was lost, before it goes on
  /// without; none: it does not wait. With on_loss only, which is then asked for a plan after that.
  std::optional<Duration> replacement_deadline;
  /// Worker of this seat was lost, and the job waits for another. Called as the others above.
  std::function<void(Rank seat)> on_vacant;
  /// The point to resume from when no worker with parameters is left, as when all workers were
  /// killed. Everything that on_checkpoint was called for before is complete. With on_loss only. If
  /// this is empty, that ends the job, as does an exception of it. Called as the others above.
  std::function<SavedPoint()> on_nobody_left;
  /// What a member measured in a step; `rank` and the sources are seats. All members adopt a plan
  /// that it returns, in an epoch of its own, unless the job has begun to end. An exception aborts
  /// the job.
  std::function<std::optional<PlanChange>(const StepMeasurement&)> on_measured;
  /// Somebody asked for another plan for the present members. A plan that it returns is adopted as
  /// that of on_measured; an exception is reported to the requester. Called as the others above,
  /// for one request at a time. Empty: there is none.
  std::function<PlanOffer()> on_replan;
  /// The job goes on.
  std::function<void(const EpochBegin&)> on_epoch;
  /// Called with each epoch before anybody hears of it, on the thread that must not wait long. An
  /// exception aborts the job. With it, a free port is one that can be had again after a kill
  /// (lasting_ports.hpp).
  std::function<void(const EpochRecord&)> keep;
  /// The latest epoch of a job whose coordinator was killed: its members come back, to the address
  /// where they knew it. While another socket has that port, the server waits, 5 s at most.
  std::optional<EpochRecord> recovered;
  /// How long those who are left may take to come back.
  Duration return_deadline = Duration(10'000'000'000'000);  ///< 10 s
};

struct CoordinatorOutcome {
  bool ok = false;
  AbortReason reason;                ///< when not ok
  std::vector<std::string> results;  ///< by rank; empty where none was reported
  JobProgress progress;
  std::uint32_t epochs = 0;  ///< of membership
};

class CoordinatorServer {
 public:
  /// Listens when it returns. Throws ConfigError when the token is missing where one is needed or
  /// the plan is too large, RuntimeFailure when the address cannot be listened on.
  explicit CoordinatorServer(CoordinatorOptions options);
  /// Aborts a job that still runs, and ends all connections.
  ~CoordinatorServer();
  CoordinatorServer(const CoordinatorServer&) = delete;
  CoordinatorServer& operator=(const CoordinatorServer&) = delete;

  const HostPort& address() const;

  /// Aborts the job: everybody is told the reason. From any thread; only the first reason counts.
  void stop(const std::string& reason);
  /// Whether all have joined, so that a process which ends is a lost worker.
  bool has_started() const;
  /// A process that was started as the worker of this seat has ended. If it had not come yet, the
  /// job does not wait for it any longer: another one is asked for, or it goes on without. From any
  /// thread.
  void worker_ended(Rank seat, std::int64_t pid);
  /// The outcome once the job is over: all have left, and all callbacks have returned. Empty when
  /// that was not so after `at_most`.
  std::optional<CoordinatorOutcome> wait_for(Duration at_most);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::runtime
