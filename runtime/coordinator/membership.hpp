// Who is in the job, and whether the job goes on: the coordinator's logic without its network.
//
// Model. A job has a fixed number of members. It gathers until all have joined, runs until all have
// reported their results, and is then finished. It is aborted, from any state and for ever, by the
// first of: the rendezvous deadline, a member that fails or is lost, a stop from outside.
//
//     gathering ──all joined──► running ──all results──► finished
//         └───────────┬────────────┘
//                     ▼  deadline, lost member, failed member, stop
//                  aborted
//
// A member is lost in one of three cases: its stream breaks before it left (at once: the kernel
// closes the sockets of a killed process), its heartbeat is overdue, or a peer cannot reach it. The
// last is only a suspicion. The peers of a killed process see their connections break at the same
// moment as the coordinator does. So a suspicion waits for a short grace period, in which the
// suspect's own end gives the better reason, and in which the others report whom they miss.
//
// Who is at fault. Members that cannot reach each other are the edges of a graph, and the cut-off
// ones a vertex cover of it. The one with the most edges goes, then the one with the most of those
// that are left, and so on. Of several the one with the highest rank goes, so that the leader's
// side of a partitioned network continues. Before all others goes a newcomer that came for a lost
// member and has nothing yet that would be lost with it. That is so until the epoch's first
// exchange, which all reach with the parameters. For one cable the result is exact; in general it
// is within O(log members) of the fewest (Chvátal, A greedy heuristic for the set-covering problem,
// 1979).
//
// Time is an argument of every call and never asked for, so a test can be exact. When ticks were
// late, the coordinator itself was not running (stopped, suspended, starved). That gap does not
// count against the members.
//
// Invariants: the state only moves along the arrows; the abort reason never changes once set; ranks
// are unique; every event is given out once, in order. Each call is O(members) at most, a heartbeat
// O(1).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "runtime/coordinator/job_status.hpp"
#include "runtime/coordinator/progress.hpp"

namespace rackrail::runtime {

using TimePoint = std::chrono::steady_clock::time_point;

struct MembershipOptions {
  std::size_t world_size = 1;
  std::uint32_t epoch = 1;  ///< counts the memberships of a job, from 1
  Duration rendezvous_deadline = Duration(60'000'000'000'000);  ///< 60 s
  Duration heartbeat_timeout = Duration(3'000'000'000'000);     ///< 3 s
  Duration suspicion_grace = Duration(500'000'000'000);         ///< 0.5 s
  /// The same where a peer was silent for long: whoever else misses it does so about now. Three of
  /// them, while it is not clear which side of a pair is to blame.
  Duration silence_grace = Duration(200'000'000'000);  ///< 0.2 s
  /// How long members may take to leave after the end before they are given up.
  Duration leave_grace = Duration(3'000'000'000'000);  ///< 3 s
  std::string plan_digest;                             ///< what a member that has a plan must have
  std::string version;                                 ///< of the program, equal for all
};

/// What a worker has that was in the job when another was lost (regroup.hpp).
struct Returning {
  Rank seat;                      ///< its rank in the first epoch
  std::uint32_t epoch = 0;        ///< the latest that it was in
  std::uint32_t step = 0;         ///< steps that its parameters contain
  std::uint32_t oldest_step = 0;  ///< of the point before, where it can go back to that
  bool has_parameters = true;     ///< false: it was lost to another before it got any
};

struct JoinRequest {
  std::optional<Rank> rank;        ///< none: any
  std::size_t world_size = 0;      ///< expected; 0: any
  std::vector<std::byte> address;  ///< of the transport
  std::string plan_digest;         ///< empty: has none
  std::string host;
  std::int64_t pid = 0;
  std::string version;
  std::optional<Returning> returning;  ///< none: it was not in the job before
};

struct CheckpointFile {
  std::string name;
  std::string sha256;
  Bytes size;
};

/// Stands for a member from joining to leaving; never given out twice.
using MemberId = Id<struct MemberTag>;

/// Why a join was refused: one line. A refused join changes nothing.
struct Refusal {
  std::string reason;
  bool too_late = false;  ///< there is nothing wrong with the request itself
};

struct AbortReason {
  std::string line;
  bool bad_input = false;  ///< the user's input is at fault: exit status 2
};

struct AllJoined {};
struct Aborted {
  AbortReason reason;
  std::vector<Rank> lost;  ///< the members that were lost, where that is the reason
  Duration silence;        ///< since the last sign of life of the first of them
};
struct CheckpointComplete {
  std::uint32_t step = 0;
  std::vector<std::vector<CheckpointFile>> files;  ///< by rank
};
struct ExchangeComplete {
  std::uint32_t round = 0;
  std::vector<std::string> parts;  ///< by rank
};
struct AllFinished {};
using MembershipEvent =
    std::variant<AllJoined, Aborted, CheckpointComplete, ExchangeComplete, AllFinished>;

enum class MembershipState { kGathering, kRunning, kFinished, kAborted };

class Membership {
 public:
  Membership(MembershipOptions options, TimePoint now);

  [[nodiscard]] std::variant<MemberId, Refusal> join(JoinRequest request, TimePoint now);
  /// The member's stream is gone; nothing happens when it had left.
  void stream_closed(MemberId member, TimePoint now);

  // What members say once the job runs; nothing happens when `rank` has left.
  void heartbeat(Rank rank, const WorkerProgress& progress, TimePoint now);
  void report_checkpoint(Rank rank, std::uint32_t step, std::vector<CheckpointFile> files);
  /// A member's part of an exchange, of which there is one per round. Rounds that are over, and
  /// those that nobody can have come to, are not looked at.
  void contribute(Rank rank, std::uint32_t round, std::string part, TimePoint now);
  /// `steps`: how many it began, where all ranks begin the same ones. Then the job is aborted once
  /// another one has begun more, because it waits for sums that this one will never make.
  void report_result(Rank rank, std::string payload, std::optional<std::uint32_t> steps,
                     TimePoint now);
  /// `peer`: whom it misses, if that is known; `silence`: for how long, where that is the reason.
  /// What a member says of the same peer once more changes nothing.
  void report_transport_error(Rank rank, std::optional<Rank> peer, const std::string& reason,
                              std::optional<Duration> silence, TimePoint now);
  /// Aborts the job unless it is over, or the member is `ok` and has said how many steps it began.
  void leave(Rank rank, bool ok, const AbortReason& reason, TimePoint now);
  /// The member is lost, for this reason: one line.
  void lose(Rank rank, const std::string& reason, TimePoint now);

  /// The job runs, and those who have left have said how many steps they began: who has begun as
  /// many needs nobody to end, too.
  bool need_nobody_more() const;
  /// Aborts the job from outside.
  void stop(const AbortReason& reason, TimePoint now);
  /// Lets deadlines pass. To be called at next_deadline() at the latest.
  void tick(TimePoint now);
  /// Never far away, so that a late tick can be told.
  TimePoint next_deadline(TimePoint now) const;

  /// What happened since the last call.
  std::vector<MembershipEvent> take_events();

  const MembershipOptions& options() const { return options_; }
  MembershipState state() const { return state_; }
  /// The job is over and all members have left or were given up.
  bool is_over(TimePoint now) const;
  const AbortReason& abort_reason() const { return abort_reason_; }
  /// 0 while gathering, then that of the options.
  std::uint32_t epoch() const { return epoch_; }
  JobProgress progress() const;
  /// By rank once all have joined, before that in the order in which they came. Without seats.
  std::vector<MemberStatus> members(TimePoint now) const;

  /// By rank; valid once all have joined.
  std::vector<std::vector<std::byte>> addresses() const;
  std::optional<Rank> rank_of(MemberId member) const;
  std::optional<MemberId> member_of(Rank rank) const;
  /// By rank; empty where none was reported.
  const std::vector<std::string>& results() const { return results_; }

 private:
  struct Member {
    MemberId id;
    std::optional<Rank> rank;
    JoinRequest request;
    TimePoint last_heard;
    WorkerProgress progress;
    bool present = true;
    bool has_result = false;
    std::optional<std::uint32_t> steps;  ///< at its end
  };
  struct Suspicion {
    Rank reporter;
    std::optional<Rank> suspect;
    std::string reason;
    TimePoint last_heard;  ///< of the suspect, by the reporter
    TimePoint said_at;
    bool is_of_silence = false;
  };

  /// Aborts the job if `member` has begun more steps than one that has ended, or ended with fewer.
  void compare_end(const Member& member, TimePoint now);
  void abort_for_want_of(const Member& ended, const Member& waiting, TimePoint now);
  std::optional<Refusal> refusal_of(const JoinRequest& request) const;
  void start(TimePoint now);
  void abort(AbortReason reason, TimePoint now, std::vector<Rank> lost = {},
             TimePoint last_heard = {});
  void lose_silent(TimePoint now);
  void judge(TimePoint now);
  /// Members of which one does not reach the other, the lower rank first.
  using Pairs = std::set<std::pair<Rank, Rank>>;
  Pairs broken_pairs() const;
  static std::map<Rank, std::size_t> degrees(const Pairs& pairs);
  bool may_be_suspected(Rank reporter, std::optional<Rank> suspect) const;
  bool may_become_clear(TimePoint now) const;
  std::vector<Rank> cut_off() const;
  bool is_newcomer(Rank rank) const;
  Member* find(Rank rank);
  const Member* find(Rank rank) const;
  std::string name(const Member& member) const;
  std::string missing_ranks() const;

  MembershipOptions options_;
  MembershipState state_ = MembershipState::kGathering;
  TimePoint start_;
  TimePoint last_tick_;
  TimePoint end_;  ///< when the state became finished or aborted
  std::uint32_t epoch_ = 0;
  AbortReason abort_reason_;
  std::vector<Member> members_;         ///< in the order of joining
  std::vector<std::size_t> by_rank_;    ///< index into members_, once all have joined
  std::vector<Suspicion> suspicions_;   ///< in the order in which they were said
  std::optional<TimePoint> judgement_;  ///< when they are decided on
  std::map<std::uint32_t, std::vector<std::optional<std::vector<CheckpointFile>>>> checkpoints_;
  std::uint32_t round_ = 0;  ///< of the exchange that is next
  /// By round, of those that are not complete.
  std::map<std::uint32_t, std::vector<std::optional<std::string>>> exchanges_;
  std::vector<std::string> results_;
  std::optional<std::size_t> first_end_;  ///< of the members, with the fewest steps
  std::vector<MembershipEvent> events_;
};

}  // namespace rackrail::runtime
