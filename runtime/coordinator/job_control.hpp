// The coordinator between its membership and its network: what happens turns into messages and
// callbacks here. The gRPC service (service.cpp) brings calls and streams.
//
// Two threads. The service thread owns the membership and the list of streams, so neither needs a
// lock; every call of the network becomes a task there. What may take long (writing a manifest, a
// progress bar) runs on the callbacks' thread, so that it never delays a heartbeat's answer. The
// outcome goes the same way and is therefore the last thing that comes out of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "runtime/coordinator/job_status.hpp"
#include "runtime/coordinator/membership.hpp"
#include "runtime/coordinator/pair_rates.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/coordinator/task_thread.hpp"

namespace rackrail::runtime {

/// What members need for reaching each other's transports.
struct PeerAddresses {
  std::vector<std::vector<std::byte>> by_rank;
  std::uint64_t key = 0;  ///< Transport::set_key(): random, another one in each epoch
};

/// What goes to one member. Called on the service thread only; never blocks.
class MemberStream {
 public:
  /// kGivenUp: the job goes on, but without this worker.
  enum class End { kLeft, kAborted, kGivenUp, kRefused, kBroken };

  virtual ~MemberStream() = default;
  MemberStream() = default;
  MemberStream(const MemberStream&) = delete;
  MemberStream& operator=(const MemberStream&) = delete;

  virtual void welcome(Rank rank, const EpochRecord& epoch, const PeerAddresses& peers) = 0;
  /// `come_back`: to join the next epoch over another stream.
  virtual void abort(const std::string& reason, bool come_back) = 0;
  virtual void finish() = 0;
  virtual void gathered(std::uint32_t round, const std::vector<std::string>& parts) = 0;
  /// After what was sent; later calls of anything do nothing.
  virtual void end(End how, const std::string& reason) = 0;
};

class JobControl {
 public:
  /// Keeps a reference.
  explicit JobControl(const CoordinatorOptions& options);

  /// From any thread: `task` runs on the service thread, where alone it may call what follows.
  void post(TaskThread::Task task) { service_.post(std::move(task)); }

  // On the service thread.
  Membership& membership() { return membership_; }
  const Membership& membership() const { return membership_; }
  void join(MemberStream& stream, JoinRequest request);
  /// The connection is gone: a member that had not left is lost.
  void broken(MemberStream& stream);
  /// The stream will not be there any more.
  void forget(MemberStream& stream);
  void leave(Rank rank, bool ok, const AbortReason& reason);
  /// See CoordinatorServer.
  void worker_ended(Rank seat, std::int64_t pid);
  /// What a member of the present epoch measured.
  void measured(std::vector<StepMeasurement> steps);
  /// Whether a member of that epoch should come back to go on.
  bool is_over_for(std::uint32_t epoch) const { return epoch < membership_.options().epoch; }
  /// At most kMostPairRates rates.
  JobStatus status(TimePoint time) const;
  /// `answer` is called once, on the service thread, maybe at once.
  void replan(std::function<void(const ReplanAnswer&)> answer);
  /// Aborts a job that still runs and ends all streams.
  void end_all(const std::string& reason);

  // From any thread.
  void stop(const std::string& reason);
  bool has_started() const { return started_; }
  std::optional<CoordinatorOutcome> wait_for(Duration at_most);
  /// Does what is still posted; nothing happens after it.
  void finish();

 private:
  TimePoint turn();
  void tell(const AllJoined& event);
  void tell(const Aborted& event);
  void tell(const CheckpointComplete& event);
  void tell(const ExchangeComplete& event);
  void tell(const AllFinished& event);
  void publish_progress(TimePoint time);
  CoordinatorOutcome outcome_now() const;

  // From one epoch to the next (job_regroup.cpp).
  void recover(const EpochRecord& record);
  bool goes_on_after(const Aborted& event) const;
  void regroup(const Aborted& event);
  void end_epoch(const std::string& reason, const std::vector<Rank>& lost, TimePoint time);
  void gather(TimePoint time);
  void come_back(MemberStream& stream, JoinRequest request);
  bool may_come_back(const JoinRequest& request) const;
  void lose_overdue(TimePoint time);
  void lose(Rank seat);
  void note_loss(Rank seat);
  void give_up_seat(Rank seat);
  void go_on_without(std::vector<Rank> lost, const std::string& meanwhile = {});
  void ask_for_saved_point();
  void note_restart(const SavedPoint& point);
  void lose_stream(MemberStream& stream);
  void ask_for_plan(std::vector<Rank> lost);
  bool change_plan(PlanChange change, std::uint32_t epoch);
  void begin_epoch();
  EpochRecord next_epoch(const Regroup& regroup, std::uint32_t step) const;
  void give_up(const std::string& reason);
  void announce(TimePoint time);

  // Who asks is no worker (job_inquiries.cpp).
  JobState state() const;
  const std::string& plan_digest() const;
  std::vector<MemberStatus> members(TimePoint time) const;
  std::optional<std::string> objection_to_replan() const;
  ReplanAnswer answer_with(PlanOffer offer, std::uint32_t epoch);

  // Workers that come while the job runs (job_newcomers.cpp).
  struct Newcomer {
    Rank seat;  ///< that it is to have
    JoinRequest request;
  };
  bool takes_newcomers() const;
  void admit(MemberStream& stream, JoinRequest request);
  std::optional<std::string> objection_to(const JoinRequest& request) const;
  std::optional<Rank> free_seat_for(const JoinRequest& request) const;
  bool is_free(Rank seat) const;
  void seat_newcomers();
  void ask_for_plan_with_newcomers();
  void take_newcomers(const std::vector<Rank>& seats, EpochPlan plan, std::uint32_t epoch);
  void refuse_newcomers(const std::string& reason);
  std::vector<Rank> seats_with_newcomers() const;
  bool may_wait_for(Rank seat);
  void vacate(Rank seat, TimePoint time);
  bool is_ending() const;
  bool is_arriving(Rank rank) const;

  // On the callbacks' thread.
  void complete_checkpoint(const CheckpointComplete& checkpoint);
  void look_at(const StepMeasurement& step, std::uint32_t epoch);
  void publish(CoordinatorOutcome outcome);

  const CoordinatorOptions& options_;

  // Of the service thread.
  Membership membership_;
  std::map<MemberStream*, MemberId> streams_;
  TimePoint last_progress_;
  bool over_ = false;
  EpochRecord epoch_;                            // the latest that began
  PairRates pair_rates_;                         // measured in it
  bool is_replanning_ = false;                   // because somebody asked for it
  std::optional<Regroup> regroup_;               // of the next epoch, between two
  std::map<MemberStream*, Rank> former_;         // seats by stream of the epoch before
  EpochBegin beginning_;                         // of this or the next epoch, not the first
  std::map<MemberStream*, Newcomer> newcomers_;  // not in a regroup yet
  bool is_asking_ = false;                       // for a plan with them
  std::map<Rank, int> vacancies_;                // since a step was done, by seat
  std::set<std::int64_t> came_;                  // process ids of workers that were let in
  TimePoint noticed_;                            // of the loss that ended the epoch before
  bool is_announced_ = true;                     // that this epoch began
  // Of the callbacks' thread.
  std::optional<AbortReason> callback_failure_;

  std::atomic<bool> started_ = false;
  std::atomic<bool> progress_waits_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<CoordinatorOutcome> outcome_;  // guarded by mutex_

  TaskThread callbacks_;
  TaskThread service_;  // last: it uses everything above from the start
};

}  // namespace rackrail::runtime
