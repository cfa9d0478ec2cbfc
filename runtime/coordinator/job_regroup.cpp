// What the coordinator does when a member was lost and the job goes on, or when there is another
// plan for all: the rules are regroup.hpp's.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_control.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::size_t kFewest = 2;  // ranks that there can be a plan for

Duration between(TimePoint begin, TimePoint end) {
  return Duration(std::chrono::nanoseconds(end - begin).count() * 1000);
}

std::chrono::nanoseconds nanoseconds_of(Duration time) {
  return std::chrono::nanoseconds(time.picoseconds() / 1000);
}

}  // namespace

bool JobControl::goes_on_after(const Aborted& event) const {
  return options_.on_loss && event.lost && membership_.epoch() != 0 &&
         epoch_.seats.size() > kFewest;
}

void JobControl::recover(const EpochRecord& record) {
  const TimePoint time = std::chrono::steady_clock::now();
  epoch_ = record;
  started_ = true;
  is_announced_ = false;
  noticed_ = time;
  beginning_.reason = "the coordinator was restarted";
  MembershipOptions next = membership_.options();
  next.epoch = record.epoch + 1;
  next.world_size = record.seats.size();
  membership_ = Membership(std::move(next), time);
  regroup_.emplace(record.seats, time + nanoseconds_of(options_.return_deadline));
  regroup_->set_plan(record.plan);
}

void JobControl::regroup(const Aborted& event) {
  const TimePoint time = std::chrono::steady_clock::now();
  const bool is_first = is_announced_;
  end_epoch(event.reason.line, event.lost, time);
  if (is_first) {
    beginning_.silence = event.silence;
  }
  ask_for_plan({beginning_.lost.back()});
}

/// Tells all but the lost one to come back, and waits for them.
void JobControl::end_epoch(const std::string& reason, std::optional<Rank> lost, TimePoint time) {
  if (std::exchange(is_announced_, false)) {
    beginning_ = {};
    beginning_.reason = reason;
    noticed_ = time;
  }
  std::vector<Rank> left = epoch_.seats;
  if (lost) {
    beginning_.lost.push_back(epoch_.seats[lost->index()]);
    std::erase(left, beginning_.lost.back());
  }
  former_.clear();
  for (const auto& [stream, member] : streams_) {
    const std::optional<Rank> rank = membership_.rank_of(member);
    if (rank && rank != lost) {
      former_.emplace(stream, epoch_.seats[rank->index()]);
      stream->abort(reason, /*come_back=*/true);
    } else {
      stream->end(MemberStream::End::kAborted, reason);
    }
  }
  streams_.clear();

  // It gathers those who are left, all at once (begin_epoch).
  MembershipOptions next = membership_.options();
  ++next.epoch;
  next.world_size = left.size();
  membership_ = Membership(std::move(next), time);
  regroup_.emplace(std::move(left), time + nanoseconds_of(options_.return_deadline));
}

void JobControl::come_back(MemberStream& stream, JoinRequest request) {
  const Returning& has = request.returning.value();
  if (options_.on_loss && !regroup_ && membership_.state() == MembershipState::kRunning &&
      has.epoch == epoch_.epoch && std::ranges::binary_search(epoch_.seats, has.seat)) {
    // Its heartbeats were not answered in time, though its stream is there: nobody is lost.
    end_epoch("rank " + std::to_string(has.seat.value()) + " (pid " + std::to_string(request.pid) +
                  " on " + request.host + ") had no answer from the coordinator",
              std::nullopt, std::chrono::steady_clock::now());
    regroup_->set_plan(epoch_.plan);
  }
  // Not only of the epoch before: a coordinator may be killed between two welcomes.
  const bool is_expected = regroup_ && has.epoch < membership_.options().epoch &&
                           regroup_->expects(has.seat) &&
                           request.version == membership_.options().version;
  if (!is_expected) {
    const bool is_aborted = membership_.state() == MembershipState::kAborted;
    stream.end(MemberStream::End::kAborted,
               is_aborted ? membership_.abort_reason().line
                          : "the worker that was rank " + std::to_string(has.seat.value()) +
                                " (pid " + std::to_string(request.pid) + " on " + request.host +
                                ") was given up, and the job goes on without it");
    return;
  }
  regroup_->come(has.seat, {&stream, std::move(request)});
  begin_epoch();
}

void JobControl::lose_stream(MemberStream& stream) {
  const auto former = former_.find(&stream);
  const std::optional<Rank> seat =
      former != former_.end() ? std::optional(former->second) : std::nullopt;
  if (former != former_.end()) {
    former_.erase(former);
  }
  if (!regroup_) {
    return;
  }
  if (const std::optional<Rank> came = regroup_->seat_of(stream)) {
    lose(*came);
  } else if (seat && regroup_->expects(*seat) && !regroup_->has_come(*seat)) {
    lose(*seat);  // who comes back keeps the old stream until it is welcome
  }
}

void JobControl::lose(Rank seat) {
  if (!regroup_ || !regroup_->expects(seat)) {
    return;
  }
  if (const auto member = regroup_->members().find(seat); member != regroup_->members().end()) {
    member->second.stream->end(MemberStream::End::kAborted, "it was given up");
  }
  beginning_.lost.push_back(seat);
  regroup_->lose(seat);
  if (!options_.on_loss) {
    give_up(beginning_.reason + "; the worker that was rank " + std::to_string(seat.value()) +
            " was lost meanwhile");
    return;
  }
  if (regroup_->left().size() < kFewest) {
    give_up(beginning_.reason + "; fewer than " + std::to_string(kFewest) + " workers are left");
    return;
  }
  MembershipOptions next = membership_.options();
  next.world_size = regroup_->left().size();
  membership_ = Membership(std::move(next), std::chrono::steady_clock::now());
  ask_for_plan({seat});
}

void JobControl::ask_for_plan(std::vector<Rank> lost) {
  Loss loss{.reason = beginning_.reason, .lost = std::move(lost), .left = regroup_->left()};
  callbacks_.post([this, loss = std::move(loss), question = regroup_->question(),
                   epoch = membership_.options().epoch] {
    try {
      EpochPlan plan = options_.on_loss(loss);
      post([this, plan = std::move(plan), question, epoch]() mutable {
        if (regroup_ && regroup_->question() == question && membership_.options().epoch == epoch) {
          regroup_->set_plan(std::move(plan));
          begin_epoch();
        }
      });
    } catch (const std::exception& error) {
      post([this, reason = loss.reason + "; no plan for those who are left: " +
                           one_line(error.what())] { give_up(reason); });
    }
  });
}

void JobControl::measured(std::vector<StepMeasurement> steps) {
  const bool has_begun = epoch_.seats.size() == membership_.options().world_size;
  if (!options_.on_measured || regroup_ || !has_begun) {
    return;
  }
  for (StepMeasurement& step : steps) {
    step.rank = epoch_.seats.at(step.rank.index());
    for (PairTraffic& traffic : step.received) {
      traffic.source = epoch_.seats.at(traffic.source.index());
    }
    callbacks_.post([this, step = std::move(step), epoch = epoch_.epoch] { look_at(step, epoch); });
  }
}

void JobControl::look_at(const StepMeasurement& step, std::uint32_t epoch) {
  try {
    if (std::optional<PlanChange> change = options_.on_measured(step)) {
      post([this, change = *std::move(change), epoch] { change_plan(change, epoch); });
    }
  } catch (const std::exception& error) {
    stop(one_line(error.what()));
  }
}

/// `epoch`: in which it was measured that there should be another plan.
void JobControl::change_plan(PlanChange change, std::uint32_t epoch) {
  const bool is_ending = std::ranges::any_of(membership_.results(),
                                             [](const std::string& one) { return !one.empty(); });
  if (regroup_ || epoch != epoch_.epoch || is_ending ||
      membership_.state() != MembershipState::kRunning) {
    return;
  }
  const bool is_first = is_announced_;
  end_epoch(change.reason, std::nullopt, std::chrono::steady_clock::now());
  beginning_.is_change = is_first;
  regroup_->set_plan(std::move(change.plan));
}

void JobControl::begin_epoch() {
  if (!regroup_->is_complete()) {
    return;
  }
  const std::optional<std::uint32_t> step = regroup_->common_step();
  if (!step) {
    give_up(beginning_.reason + "; those who are left are more than one step apart");
    return;
  }
  const Regroup regroup = *std::exchange(regroup_, std::nullopt);
  const TimePoint time = std::chrono::steady_clock::now();
  former_.clear();
  MembershipOptions next = membership_.options();
  epoch_ = {.epoch = next.epoch, .seats = regroup.left(), .step = *step, .plan = regroup.plan()};
  next.plan_digest = epoch_.plan.digest;
  membership_ = Membership(std::move(next), time);
  std::size_t rank = 0;
  for (const auto& [seat, member] : regroup.members()) {
    JoinRequest request = member.request;
    request.rank = Rank(rank++);
    request.world_size = 0;
    request.plan_digest = {};  // of the epoch before
    streams_.emplace(member.stream, std::get<MemberId>(membership_.join(std::move(request), time)));
  }
  beginning_.epoch = epoch_.epoch;
  beginning_.seats = epoch_.seats;
  beginning_.step = epoch_.step;
}

void JobControl::give_up(const std::string& reason) {
  if (!regroup_) {
    return;
  }
  const Regroup regroup = *std::exchange(regroup_, std::nullopt);
  for (const auto& [seat, member] : regroup.members()) {
    member.stream->end(MemberStream::End::kAborted, reason);
  }
  membership_.stop({reason, false}, std::chrono::steady_clock::now());
}

void JobControl::announce(TimePoint time) {
  if (std::exchange(is_announced_, true)) {
    return;
  }
  beginning_.pause = between(noticed_, time);
  if (options_.on_epoch) {
    callbacks_.post([this, beginning = beginning_] { options_.on_epoch(beginning); });
  }
}

}  // namespace rackrail::runtime
