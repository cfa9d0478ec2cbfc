// A worker's side of the coordinator.
//
// A thread reads the stream of the membership, another sends heartbeats. The job is aborted for
// this worker when the coordinator says so, when the stream breaks, or when a heartbeat is not
// answered in time; whatever comes first calls `on_abort`, once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "runtime/coordinator/host_port.hpp"
#include "runtime/coordinator/membership.hpp"
#include "runtime/coordinator/progress.hpp"
#include "runtime/coordinator/tls.hpp"

namespace rackrail::runtime {

/// What all workers get once everybody has come.
struct Welcome {
  Rank rank;
  std::size_t world_size = 1;
  std::uint32_t epoch = 0;
  std::vector<std::vector<std::byte>> addresses;  ///< of the transports, by rank
  std::uint64_t transport_key = 0;                ///< Transport::set_key()
  std::string plan;                               ///< binary form
  std::string job_options;                        ///< JSON
  std::uint32_t step = 0;                         ///< that all have, in an epoch after the first
  Rank seat;                                      ///< its rank in the first epoch
  std::vector<Rank> newcomers;  ///< who has no parameters yet: the others give them
  /// Where all are newcomers: the folder that they begin with; empty: as at the job's beginning.
  std::string checkpoint;
  Duration heartbeat_period;
  Duration heartbeat_timeout;
};

class CoordinatorClient {
 public:
  /// Connects in the background: the coordinator need not be there yet. `on_abort` is called on a
  /// thread of the client, at most once, after the welcome has come (maybe while join() returns).
  /// With `tls` only over TLS, to a coordinator that the same authority has signed.
  CoordinatorClient(const HostPort& coordinator, std::string token,
                    std::function<void(const std::string& reason)> on_abort,
                    const std::optional<TlsCertificates>& tls = {});
  /// Without leave(), the others take this worker for lost.
  ~CoordinatorClient();
  CoordinatorClient(const CoordinatorClient&) = delete;
  CoordinatorClient& operator=(const CoordinatorClient&) = delete;

  /// Waits until all workers have come; heartbeats go from then on. Called once. Throws ConfigError
  /// when the coordinator refuses (token, plan, rank), RuntimeFailure when it cannot be reached
  /// within the deadline or the job ends before it began.
  Welcome join(const JoinRequest& request, Duration deadline);

  /// What the next heartbeats say.
  void set_progress(const WorkerProgress& progress);

  /// Goes with the next heartbeat, which it makes come soon. When the coordinator does not take
  /// them as fast as they come, the oldest are dropped.
  void add_measurement(StepMeasurement measurement);

  // Each throws PeerLostError with the reason when the job was aborted or the coordinator is gone.
  void report_checkpoint(std::uint32_t step, const std::vector<CheckpointFile>& files);
  /// `steps`: as Membership::report_result().
  void report_result(const std::string& payload, std::optional<std::uint32_t> steps = {});
  /// Gives this rank's part and waits for those of all ranks, which come by rank number. Every rank
  /// must call it as often as the others; one call at a time. Also a barrier: nobody returns before
  /// the last has called.
  std::vector<std::string> exchange(const std::string& part);
  /// After report_result: waits until all ranks have reported theirs. False when they have not
  /// within `at_most`; without it there is no such limit.
  bool wait_until_finished(std::optional<Duration> at_most = {});

  /// Says that the transport cannot reach a peer (if known which), maybe because it was silent for
  /// some time. Whether the coordinator heard it; never throws.
  bool say_transport_error(std::optional<Rank> peer, const std::string& reason,
                           std::optional<Duration> silence = {});
  /// The same, and waits shortly for the coordinator's reason, which knows more; nothing when it
  /// has none.
  std::optional<std::string> report_transport_error(std::optional<Rank> peer,
                                                    const std::string& reason,
                                                    std::optional<Duration> silence = {});
  /// The reason when the job was aborted.
  std::optional<std::string> abort_reason() const;
  /// Whether that reason came from the coordinator, so that all others have it too.
  bool was_told_to_abort() const;
  /// Whether the job goes on without who was lost: join again, with another client, before this one
  /// goes.
  bool is_to_come_back() const;
  /// Whether the job was aborted, or join() failed, because the coordinator itself was lost.
  bool is_coordinator_lost() const;
  /// Whether the coordinator knows why this worker ends: it gave the reason, or took note of the
  /// one that leave() said. Then it is for the job's leader to say it, once; but a worker without
  /// which the job goes on has to say it for itself.
  bool coordinator_knows() const;

  /// Says good-bye and ends the connection; `reason` is one line for everybody when not ok.
  /// Never throws; the second call does nothing.
  void leave(bool ok, const AbortReason& reason = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::runtime
