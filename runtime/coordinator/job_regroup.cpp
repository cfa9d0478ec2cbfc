// What the coordinator does when a member was lost and the job goes on, or when there is another
// plan for all: the rules are regroup.hpp's.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "runtime/coordinator/clock.hpp"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_control.hpp"

namespace rackrail::runtime {
namespace {

constexpr std::size_t kFewest = 2;  // ranks that there can be a plan for
constexpr const char* kNobodyLeft = "; nobody is left who has the parameters";
constexpr Duration kNever = Duration(1'000'000'000'000'000'000);  // eleven days

Duration between(TimePoint begin, TimePoint end) {
  return Duration(std::chrono::nanoseconds(end - begin).count() * 1000);
}

}  // namespace

bool JobControl::goes_on_after(const Aborted& event) const {
  const std::size_t fewest =
      !options_.replacement_deadline ? kFewest : (options_.on_nobody_left ? 0 : 1);
  return options_.on_loss && !event.lost.empty() && membership_.epoch() != 0 &&
         epoch_.seats.size() >= event.lost.size() + fewest;
}

void JobControl::recover(const EpochRecord& record) {
  const TimePoint time = std::chrono::steady_clock::now();
  epoch_ = record;
  epoch_.since.resize(epoch_.seats.size(), 0);
  started_ = true;
  is_announced_ = false;
  noticed_ = time;
  beginning_.noticed = std::chrono::system_clock::now();
  beginning_.reason = "the coordinator was restarted";
  gather(time);
}

void JobControl::regroup(const Aborted& event) {
  const TimePoint time = std::chrono::steady_clock::now();
  const bool is_first_loss = is_announced_ || beginning_.lost.empty();
  const bool is_after_another = !is_announced_;
  end_epoch(event.reason.line, event.lost, time);
  if (is_first_loss) {
    beginning_.silence = event.silence;
    if (is_after_another) {
      beginning_.reason += "; " + event.reason.line;
    }
  }
  std::vector<Rank> given_up;
  for (const Rank rank : event.lost) {
    const Rank seat = epoch_.seats[rank.index()];
    if (may_wait_for(seat)) {
      vacate(seat, time);
    } else {
      regroup_->lose(seat);
      given_up.push_back(seat);
    }
  }
  if (!given_up.empty()) {
    go_on_without(std::move(given_up));
  }
  seat_newcomers();
}

/// Tells all but the lost ones to come back, and waits for them. The seats of the lost ones are
/// left to the caller.
void JobControl::end_epoch(const std::string& reason, const std::vector<Rank>& lost,
                           TimePoint time) {
  if (std::exchange(is_announced_, false)) {
    beginning_ = {};
    beginning_.reason = reason;
    beginning_.noticed = std::chrono::system_clock::now();
    noticed_ = time;
  }
  for (const Rank rank : lost) {
    note_loss(epoch_.seats[rank.index()]);
  }
  former_.clear();
  for (const auto& [stream, member] : streams_) {
    const std::optional<Rank> rank = membership_.rank_of(member);
    if (rank && !std::ranges::count(lost, *rank)) {
      former_.emplace(stream, epoch_.seats[rank->index()]);
      stream->abort(reason, /*come_back=*/true);
    } else {
      stream->end(MemberStream::End::kGivenUp, reason + "; the job goes on without it");
    }
  }
  streams_.clear();

  gather(time);
}

/// For the epoch after the latest, of the same seats and by the same plan, unless that changes.
void JobControl::gather(TimePoint time) {
  // The membership gathers all at once (begin_epoch): until then the regroup has the deadlines.
  MembershipOptions next = membership_.options();
  next.epoch = epoch_.epoch + 1;
  next.rendezvous_deadline = kNever;
  membership_ = Membership(std::move(next), time);
  pair_rates_.clear();
  regroup_.emplace(epoch_.seats, time + to_chrono(options_.return_deadline));
  regroup_->set_plan(epoch_.plan);
}

void JobControl::note_loss(Rank seat) {
  if (std::ranges::count(beginning_.lost, seat) == 0) {
    beginning_.lost.push_back(seat);
  }
  std::erase(beginning_.taken, seat);  // who took it is lost, too
}

/// Not only of the epoch before: a coordinator may be killed between two welcomes. But the seat
/// must not have been given to another worker since.
bool JobControl::may_come_back(const JoinRequest& request) const {
  const Returning& has = request.returning.value();
  if (!regroup_ || has.epoch >= membership_.options().epoch || !regroup_->expects(has.seat) ||
      request.version != membership_.options().version) {
    return false;
  }
  const auto member = regroup_->members().find(has.seat);
  const auto seat = std::ranges::lower_bound(epoch_.seats, has.seat);
  const bool was_taken_now =
      member != regroup_->members().end() && !member->second.request.returning;
  return !was_taken_now && seat != epoch_.seats.end() && *seat == has.seat &&
         has.epoch >= epoch_.since.at(static_cast<std::size_t>(seat - epoch_.seats.begin()));
}

void JobControl::come_back(MemberStream& stream, JoinRequest request) {
  const Returning& has = request.returning.value();
  if (options_.on_loss && !regroup_ && membership_.state() == MembershipState::kRunning &&
      has.epoch == epoch_.epoch && std::ranges::binary_search(epoch_.seats, has.seat)) {
    // Its heartbeats were not answered in time, though its stream is there: nobody is lost.
    end_epoch("rank " + std::to_string(has.seat.value()) + " (pid " + std::to_string(request.pid) +
                  " on " + request.host + ") had no answer from the coordinator",
              {}, std::chrono::steady_clock::now());
  }
  if (!may_come_back(request)) {
    if (membership_.state() == MembershipState::kAborted) {
      stream.end(MemberStream::End::kAborted, membership_.abort_reason().line);
    } else {
      stream.end(MemberStream::End::kGivenUp,
                 "the worker that was rank " + std::to_string(has.seat.value()) + " (pid " +
                     std::to_string(request.pid) + " on " + request.host +
                     ") was given up, and the job goes on without it");
    }
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
  newcomers_.erase(&stream);
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
    member->second.stream->end(
        MemberStream::End::kGivenUp,
        "rank " + std::to_string(seat.value()) + " was given up, and the job goes on without it");
  }
  note_loss(seat);
  if (!may_wait_for(seat)) {
    give_up_seat(seat);
    return;
  }
  vacate(seat, std::chrono::steady_clock::now());
  if (!regroup_->has_holders() && !options_.on_nobody_left) {
    give_up(beginning_.reason + kNobodyLeft);
    return;
  }
  seat_newcomers();
}

/// Nobody is to have it in the next epoch.
void JobControl::give_up_seat(Rank seat) {
  regroup_->lose(seat);
  const std::string meanwhile =
      "; the worker that was rank " + std::to_string(seat.value()) + " was lost meanwhile";
  if (!options_.on_loss) {
    give_up(beginning_.reason + meanwhile);
    return;
  }
  go_on_without({seat}, meanwhile);
}

/// After `lost` are gone from the regroup. `meanwhile`: their loss, where it is not the first.
void JobControl::go_on_without(std::vector<Rank> lost, const std::string& meanwhile) {
  if (regroup_->left().size() < kFewest) {
    give_up(beginning_.reason + meanwhile + "; fewer than " + std::to_string(kFewest) +
            " workers are left");
    return;
  }
  ask_for_plan(std::move(lost));
}

void JobControl::lose_overdue(TimePoint time) {
  if (!regroup_) {
    return;
  }
  for (const Rank seat : regroup_->overdue(time)) {
    if (regroup_ && regroup_->is_vacant(seat)) {
      give_up_seat(seat);
    } else {
      lose(seat);
    }
  }
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

/// Of a complete regroup in which nobody has parameters. Those who came may be lost again
/// meanwhile, but no point is saved.
void JobControl::ask_for_saved_point() {
  if (!options_.on_nobody_left) {
    give_up(beginning_.reason + kNobodyLeft);
    return;
  }
  callbacks_.post([this, epoch = membership_.options().epoch] {
    try {
      post([this, point = options_.on_nobody_left(), epoch]() mutable {
        if (regroup_ && membership_.options().epoch == epoch) {
          regroup_->set_saved_point(std::move(point));
          begin_epoch();
        }
      });
    } catch (const std::exception& error) {
      post([this, reason = one_line(error.what())] {
        give_up(beginning_.reason + kNobodyLeft + ": " + reason);
      });
    }
  });
}

void JobControl::note_restart(const SavedPoint& point) {
  beginning_.reason += std::string(kNobodyLeft) + ", so all resume from " +
                       (point.checkpoint.empty() ? "the beginning" : "a checkpoint");
}

void JobControl::measured(std::vector<StepMeasurement> steps) {
  const bool has_begun = epoch_.seats.size() == membership_.options().world_size;
  if (!options_.on_measured || regroup_ || !has_begun) {
    return;
  }
  for (StepMeasurement& step : steps) {
    pair_rates_.add(step);
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

/// `epoch`: in which it was found that there should be another plan. Whether it is taken up.
bool JobControl::change_plan(PlanChange change, std::uint32_t epoch) {
  if (regroup_ || epoch != epoch_.epoch || is_ending() ||
      membership_.state() != MembershipState::kRunning) {
    return false;
  }
  const bool is_first = is_announced_;
  end_epoch(change.reason, {}, std::chrono::steady_clock::now());
  beginning_.is_change = is_first;
  regroup_->set_plan(std::move(change.plan));
  return true;
}

void JobControl::begin_epoch() {
  if (!regroup_->is_complete()) {
    return;
  }
  std::optional<std::uint32_t> step = regroup_->common_step();
  if (!step && regroup_->has_holders()) {
    give_up(beginning_.reason + "; those who are left are more than one step apart");
    return;
  }
  if (!step && !regroup_->saved_point()) {
    ask_for_saved_point();
    return;
  }
  if (!step) {
    step = regroup_->saved_point()->step;
    note_restart(*regroup_->saved_point());
  }
  const Regroup regroup = *std::exchange(regroup_, std::nullopt);
  const TimePoint time = std::chrono::steady_clock::now();
  former_.clear();
  MembershipOptions next = membership_.options();
  if (*step > epoch_.step) {
    vacancies_.clear();
  }
  epoch_ = next_epoch(regroup, *step);
  next.plan_digest = epoch_.plan.digest;
  next.world_size = epoch_.seats.size();
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
  for (const Rank newcomer : epoch_.newcomers) {
    const Rank seat = epoch_.seats[newcomer.index()];
    if (std::ranges::count(beginning_.taken, seat) == 0) {
      beginning_.taken.push_back(seat);
    }
  }
}

/// `regroup` is complete.
EpochRecord JobControl::next_epoch(const Regroup& regroup, std::uint32_t step) const {
  EpochRecord next{.epoch = membership_.options().epoch,
                   .seats = regroup.left(),
                   .since = {},
                   .step = step,
                   .plan = regroup.plan(),
                   .newcomers = {},
                   .checkpoint = {}};
  const std::vector<Rank> newcomers = regroup.newcomers();
  if (newcomers.size() == next.seats.size()) {
    next.checkpoint = regroup.saved_point().value().checkpoint;
  }
  for (std::size_t rank = 0; rank < next.seats.size(); ++rank) {
    const Rank seat = next.seats[rank];
    const auto before = std::ranges::lower_bound(epoch_.seats, seat);
    const bool stays = before != epoch_.seats.end() && *before == seat &&
                       regroup.members().at(seat).request.returning;
    next.since.push_back(
        stays ? epoch_.since[static_cast<std::size_t>(before - epoch_.seats.begin())] : next.epoch);
    if (std::ranges::binary_search(newcomers, seat)) {
      next.newcomers.emplace_back(rank);
    }
  }
  return next;
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
  seat_newcomers();
}

}  // namespace rackrail::runtime
