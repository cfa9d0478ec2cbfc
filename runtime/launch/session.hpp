// One process's part in a job, apart from what the job is for: joined to the others, connected to
// them, with an executor for the plan that the job runs now.
//
// A job may take up another plan while it runs (adopt). A slice must never reach an executor of
// another plan, which would drop it, and somebody would wait for it for ever. So all ranks
//   1. finish their buckets, which takes every slice that was sent from the network;
//   2. meet at the coordinator;
//   3. end their executors, so that nobody takes slices from the transport;
//   4. meet again, and make executors for the new plan, of the next epoch.
// From 2 to 4 nobody sends: a rank sends for the new plan only after the second meeting, when every
// old executor is gone. What arrives at a rank whose new executor is not made yet stays in the
// transport, which delivers only when it is asked to.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"
#include "runtime/coordinator/client.hpp"
#include "runtime/executor.hpp"
#include "runtime/parameter_server/parameter_exchange.hpp"
#include "runtime/plan_executor.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

/// How long a job may take to end: a worker whose heart stopped has to be noticed and given up.
inline constexpr Duration kEndPatience = 30_s;

/// What an executor is made of, for a job whose gradients are not on the host.
struct ExecutorSite {
  const plan::Plan& plan;
  Rank self;
  Transport& transport;  ///< connected, and the executor's alone
  std::uint32_t epoch = 0;
  /// Collective: sends a text to all ranks and returns the texts of all, by rank. Every rank calls
  /// it.
  std::function<std::vector<std::string>(const std::string& own)> exchange;
  /// Whether the job has ended already, for another reason than this rank's. As long as the
  /// executor lives, from any thread.
  std::function<bool()> is_over;
};
using MakeExecutor = std::function<std::unique_ptr<PlanExecutor>(const ExecutorSite& site)>;

struct SessionOptions {
  HostPort coordinator;
  std::string token;  ///< of the job; empty: it has none
  std::optional<TlsCertificates> tls;
  bool is_network_private = false;  ///< nobody else reads it: no certificates are needed
  std::optional<Rank> rank;         ///< none: the coordinator gives one
  std::size_t world_size = 0;       ///< expected number of ranks; 0: any
  std::string plan_digest;          ///< refuse a job with another plan; empty: any
  std::string transport = "ucx";
  /// Whether another transport that joins processes will do where that one cannot be used.
  bool takes_other_transport = false;
  /// How long the coordinator and the other ranks may take to come.
  Duration rendezvous_deadline = 60_s;
  /// What this rank has, where it was in the job before somebody was lost.
  std::optional<Returning> returning;
};

/// The variable RACKRAIL_TRANSPORT, or "ucx".
std::string default_transport();
std::string host_name();

class Session {
 public:
  /// Neither joins nor opens anything yet. `transport`: one that is open already, instead of that
  /// which the options name. Throws ConfigError where the token would cross a network in clear
  /// (require_private).
  explicit Session(SessionOptions options, std::unique_ptr<Transport> transport = nullptr);
  /// Without finish() or fail(), the others take this rank for lost.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Opens the transport, waits for all ranks and connects to them. Throws ConfigError when the
  /// coordinator refuses, RuntimeFailure when somebody does not come, MissedPeerError when somebody
  /// came and cannot be reached: this rank has its seat then, and may come back to it.
  void join();
  bool has_joined() const { return has_joined_; }
  /// What the coordinator said to all, without what was only needed to connect.
  const Welcome& welcome() const { return welcome_; }
  std::string_view transport_name() const { return transport_->name(); }
  /// One line each: what the user should know about the transport.
  const std::vector<std::string>& notes() const { return notes_; }

  /// The first plan: every rank has the same one. `options.epoch` is set here. `maker`: of
  /// this plan's executor and of all later ones, instead of runtime/executor.hpp's, which `options`
  /// are for. Throws PlanError for a plan of another number of ranks, PeerLostError when the job
  /// was aborted while `maker` met the other ranks.
  void start(plan::Plan plan, const ExecutorOptions& options = {}, MakeExecutor maker = {});
  /// Instead of start(): an asynchronous parameter server with this bound, for a job that adopts no
  /// other plan and has its gradients on the host. Throws PlanError, and as ParameterExchange.
  /// `options.epoch` and `options.on_missed` are set here.
  void start_servers(plan::Plan plan, ParameterExchangeOptions options);
  /// Another plan, by all ranks at the same point: after the same buckets, all of them done or to
  /// be waited for. Residuals of the old plan whose places the new one has too are kept. Throws
  /// PlanError, on all ranks and with the old plan still there, when the plans differ or are of
  /// another number of ranks, PeerLostError when the job was aborted.
  void adopt(plan::Plan plan);

  /// Between join() and start(), by this thread alone: for what the ranks of an epoch say to each
  /// other before they train.
  Transport& transport() { return *transport_; }

  const plan::Plan& plan() const { return *plan_; }
  /// Until the next adopt(), finish() or fail().
  PlanExecutor& executor() { return *executor_; }
  /// None after start().
  ParameterExchange* servers() { return servers_.get(); }
  /// Of the executor, or of what moves gradients instead of it.
  ExecutorStatistics statistics() const;
  CoordinatorClient& coordinator() { return client_; }

  /// Orderly end: says the result and waits for those of the others, who may still need what this
  /// rank's executor forwards. False when they have not come within `at_most`: this rank then
  /// leaves, which ends the job for all, but where it has said its `steps`, as for
  /// Membership::report_result(). Throws PeerLostError.
  bool finish(const std::string& result, std::optional<Duration> at_most = {},
              std::optional<std::uint32_t> steps = {});
  /// Ends this rank's part and tells the others why. Never throws; nothing after the first end.
  void fail(const AbortReason& reason);
  /// Tells the others why this rank ends its part, and makes every wait of its executor end. From
  /// any thread, also while others use the executor, which stays. Never throws.
  void abandon(const AbortReason& reason);
  /// Releases the executor and disconnects from the other ranks, as when one of them was lost,
  /// without telling the coordinator. Then only the coordinator may be asked.
  void disconnect() noexcept;
  /// The best reason there is for a peer that was lost: that of abandon(), if the job had not ended
  /// before, else the coordinator's, if it has one. If there is neither, it is told what was seen
  /// here, and may answer.
  std::string reason_of_loss(const PeerLostError& seen_here);

 private:
  void require_ranks(const plan::Plan& plan) const;
  void say_missed(const MissedPeer& peer);
  void make_executor(plan::Plan plan);
  void end_executor() noexcept;
  void abort(const std::string& reason);
  void close(Duration deadline) noexcept;

  const SessionOptions options_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::string> notes_;
  Welcome welcome_;
  bool has_joined_ = false;
  ExecutorOptions executor_options_;
  MakeExecutor make_executor_;
  std::unique_ptr<plan::Plan> plan_;
  std::mutex executor_mutex_;  // guards the next three against the client's and abandon()'s threads
  std::optional<std::string> abandoned_;  // why, once this rank gave up
  std::unique_ptr<PlanExecutor> executor_;
  std::unique_ptr<ParameterExchange> servers_;  // instead of the executor
  CoordinatorClient client_;                    // last: its threads call abort()
};

}  // namespace rackrail::runtime
