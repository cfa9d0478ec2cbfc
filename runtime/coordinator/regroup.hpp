// How a job goes on after a loss: who is still expected, who has come back, and the step and the
// plan that the next epoch of the membership begins with.
//
// Model. A worker keeps its seat, the rank that it had in the job's first epoch, for as long as it
// is in the job. Its rank in an epoch is the number of taken seats before its own, so ranks stay
// dense and in the order of the first plan. When a member is lost, all others are told to come
// back: to end their executor and transport, and to join again with what they have. The next epoch
// begins when all who are left have come and there is a plan for exactly them. A worker that is
// lost meanwhile is no longer expected; then another plan is needed. An epoch may also begin
// because there is a better plan: all come back, and nobody is lost.
//
// Newcomers. A seat whose holder was lost may be vacant for a while: then it is expected that
// another worker takes it, which was not in the job before, and who had it may not come back. An
// epoch may also begin because somebody came for a seat that had been given up. A newcomer has no
// parameters: once the epoch has begun, those who have them give them to it
// (launch/state_transfer.hpp). When all who had some are lost before that, the next epoch begins
// for newcomers only, with a point that was saved, which is then asked for; without one the job
// ends.
//
// The step. A rank can finish step s + 1 (sums of the gradients of all ranks) only when every rank
// has begun it, and so has applied step s. Hence the survivors are at most one step apart. All of
// them resume from the smallest number of steps that any of them has. Those that have one more go
// back to the parameters that they kept. So no rank applies an update that another does not. Where
// ranks hold the same parameters only now and then, all this is true of those points instead of
// steps: the number of steps that a rank has is that at the latest of them.
//
// Pure logic, as membership.hpp: time is an argument. Streams are only names here. O(seats) a call.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "runtime/coordinator/membership.hpp"

namespace rackrail::runtime {

class MemberStream;

/// A plan for the ranks of one epoch, as workers get it.
struct EpochPlan {
  std::string plan;    ///< binary form
  std::string digest;  ///< plan::digest
};

/// What all begin with when nobody is left who has parameters.
struct SavedPoint {
  std::uint32_t step = 0;  ///< steps that its parameters contain
  std::string checkpoint;  ///< a folder that all workers see; empty: the job's own beginning
};

/// All that an epoch of the membership begins with.
struct EpochRecord {
  std::uint32_t epoch = 1;
  std::vector<Rank> seats;  ///< by rank
  /// By rank, the epoch since which the seat has its holder: one of before may not come back.
  std::vector<std::uint32_t> since;
  std::uint32_t step = 0;  ///< steps that the parameters of all contain
  EpochPlan plan;
  std::vector<Rank> newcomers;  ///< ranks without parameters; forgotten with the epoch's beginning
  /// SavedPoint::checkpoint, where all ranks are newcomers; forgotten likewise.
  std::string checkpoint;
};

/// What whoever leads the job is asked for a plan with.
struct Loss {
  std::string reason;      ///< one line, of the first loss
  std::vector<Rank> lost;  ///< seats that are not expected any more, since the last such question
  std::vector<Rank> left;  ///< seats that are, in the order of their next ranks
};

/// Another plan for all who are in the job.
struct PlanChange {
  std::string reason;  ///< one line
  EpochPlan plan;
};

/// What whoever leads the job answers to a request for another plan.
struct PlanOffer {
  std::string reason;  ///< one line: what the plan is for, or why there is none
  std::optional<EpochPlan> plan{};
  std::optional<Duration> kept_step_time{};  ///< predicted with the plan in use
  std::optional<Duration> new_step_time{};   ///< with another, whether it is offered or not
};

/// How an epoch after the first began.
struct EpochBegin {
  std::uint32_t epoch = 0;
  std::string reason;       ///< of the first loss; after that of the change, where it was one
  bool is_change = false;   ///< it began with a PlanChange, though somebody may be lost since
  std::vector<Rank> lost;   ///< seats, all of them; none when only connections were
  std::vector<Rank> seats;  ///< by rank
  std::vector<Rank> taken;  ///< seats that newcomers took, of those lost now or before
  std::uint32_t step = 0;   ///< steps that the parameters of all contain
  Duration silence;         ///< from the lost member's last sign of life to the notice of its loss
  std::chrono::system_clock::time_point noticed;  ///< when the loss or the better plan was
  Duration pause;  ///< from that to the moment when all were ready to train again
};

class Regroup {
 public:
  /// `left` are ascending seats.
  Regroup(std::vector<Rank> left, TimePoint deadline);

  struct Member {
    MemberStream* stream = nullptr;
    JoinRequest request;
  };

  /// Whether the holder of this seat may come back.
  bool expects(Rank seat) const;
  bool has_come(Rank seat) const { return members_.contains(seat); }
  /// Each seat once; it must be expected.
  void come(Rank seat, Member member);
  /// The seat's holder is expected no longer, but a newcomer until the deadline. The plan stays.
  void vacate(Rank seat, TimePoint deadline);
  bool is_vacant(Rank seat) const { return vacant_.contains(seat); }
  /// Somebody who was not in the job before takes a seat, which is vacant or was none of those that
  /// are left: then a plan that there is should have been made with it.
  void take(Rank seat, Member newcomer);
  /// Whether somebody is left who has parameters.
  bool has_holders() const;
  /// The seat of who came over this stream.
  std::optional<Rank> seat_of(const MemberStream& stream) const;
  /// It is expected no longer, and neither is a plan that was made with it.
  void lose(Rank seat);
  /// Who has not come although it is time; vacant seats, too.
  std::vector<Rank> overdue(TimePoint now) const;
  TimePoint deadline() const { return deadline_; }

  /// Seats of the next epoch, vacant ones too.
  const std::vector<Rank>& left() const { return left_; }
  /// Which question for a plan counts: earlier ones are about seats that were lost since.
  std::uint32_t question() const { return question_; }
  void set_plan(EpochPlan plan) { plan_ = std::move(plan); }
  /// For the case that nobody is left who has parameters.
  void set_saved_point(SavedPoint point) { saved_point_ = std::move(point); }
  const std::optional<SavedPoint>& saved_point() const { return saved_point_; }

  /// All have come and there is a plan for them.
  bool is_complete() const { return plan_.has_value() && members_.size() == left_.size(); }
  const EpochPlan& plan() const { return plan_.value(); }
  /// By seat.
  const std::map<Rank, Member>& members() const { return members_; }
  /// Seats of those who have come without parameters.
  std::vector<Rank> newcomers() const;
  /// The number of steps that all can have but the newcomers; none when somebody cannot go back
  /// that far, which means that it was not in the same job, or when nobody has parameters.
  std::optional<std::uint32_t> common_step() const;

 private:
  std::vector<Rank> left_;
  TimePoint deadline_;
  std::uint32_t question_ = 0;
  std::optional<EpochPlan> plan_;
  std::optional<SavedPoint> saved_point_;
  std::map<Rank, Member> members_;
  std::map<Rank, TimePoint> vacant_;  ///< until when they wait for somebody
};

}  // namespace rackrail::runtime
