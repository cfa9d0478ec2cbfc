// What the coordinator does with workers that come while the job runs, in the place of one that was
// lost: the rules are regroup.hpp's.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "runtime/coordinator/clock.hpp"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_control.hpp"

namespace rackrail::runtime {
namespace {

// Times in a row that a seat is kept for another worker without a step being done: what kills each
// of them at once would go on for ever.
constexpr int kMostVacancies = 5;

std::string describe(const JoinRequest& request) {
  return "pid " + std::to_string(request.pid) + " on " + request.host;
}

}  // namespace

bool JobControl::takes_newcomers() const {
  return options_.on_loss && !epoch_.seats.empty() &&
         (regroup_ || membership_.state() == MembershipState::kRunning);
}

/// Who had come is noticed by its stream.
void JobControl::worker_ended(Rank seat, std::int64_t pid) {
  if (!regroup_ || !regroup_->is_vacant(seat) || came_.contains(pid)) {
    return;
  }
  if (may_wait_for(seat)) {
    vacate(seat, std::chrono::steady_clock::now());
  } else {
    give_up_seat(seat);
  }
}

bool JobControl::is_ending() const {
  return std::ranges::any_of(membership_.results(),
                             [](const std::string& one) { return !one.empty(); });
}

/// Whether this rank has come in this epoch, and the epoch has yet to begin for all.
bool JobControl::is_arriving(Rank rank) const {
  return !is_announced_ && !regroup_ && std::ranges::count(epoch_.newcomers, rank) != 0;
}

/// Of the job as it began: a newcomer takes the place of one that was there then.
std::optional<std::string> JobControl::objection_to(const JoinRequest& request) const {
  const MembershipOptions& job = options_.membership;
  if (request.version != job.version) {
    return "runs rackrail " + request.version + ", expected " + job.version;
  }
  if (request.world_size != 0 && request.world_size != job.world_size) {
    return "expects " + std::to_string(request.world_size) + " workers, the job has " +
           std::to_string(job.world_size);
  }
  if (!request.plan_digest.empty() && request.plan_digest != job.plan_digest) {
    return "has the plan " + request.plan_digest.substr(0, 12) + ", the job began with the plan " +
           job.plan_digest.substr(0, 12);
  }
  if (request.rank && request.rank->index() >= job.world_size) {
    return "is out of range: the job has ranks 0 to " + std::to_string(job.world_size - 1);
  }
  return std::nullopt;
}

bool JobControl::is_free(Rank seat) const {
  const bool is_promised = std::ranges::any_of(
      newcomers_, [seat](const auto& entry) { return entry.second.seat == seat; });
  if (is_promised) {
    return false;
  }
  const std::vector<Rank>& taken = regroup_ ? regroup_->left() : epoch_.seats;
  return (regroup_ && regroup_->is_vacant(seat)) || !std::ranges::binary_search(taken, seat);
}

std::optional<Rank> JobControl::free_seat_for(const JoinRequest& request) const {
  if (request.rank) {
    return is_free(*request.rank) ? request.rank : std::nullopt;
  }
  std::optional<Rank> found;
  for (std::size_t seat = 0; seat < options_.membership.world_size; ++seat) {
    if (is_free(Rank(seat))) {
      if (regroup_ && regroup_->is_vacant(Rank(seat))) {
        return Rank(seat);  // that is waited for
      }
      found = found.value_or(Rank(seat));
    }
  }
  return found;
}

void JobControl::admit(MemberStream& stream, JoinRequest request) {
  const std::string who =
      (request.rank ? "rank " + std::to_string(request.rank->value()) : std::string("a worker")) +
      " (" + describe(request) + ") ";
  if (const std::optional<std::string> objection = objection_to(request)) {
    stream.end(MemberStream::End::kRefused, who + *objection);
    return;
  }
  const std::optional<Rank> seat = free_seat_for(request);
  if (!seat) {
    stream.end(MemberStream::End::kGivenUp,
               who + "came too late: " +
                   (request.rank ? "the job has a worker of that rank" : "all workers are there"));
    return;
  }
  came_.insert(request.pid);
  newcomers_.emplace(&stream, Newcomer{.seat = *seat, .request = std::move(request)});
  seat_newcomers();
}

std::vector<Rank> JobControl::seats_with_newcomers() const {
  std::vector<Rank> seats = epoch_.seats;
  for (const auto& [stream, newcomer] : newcomers_) {
    seats.push_back(newcomer.seat);
  }
  std::ranges::sort(seats);
  return seats;
}

/// Those for whom a seat is kept have it; for the others an epoch of their own begins as soon as
/// there is a plan with them.
void JobControl::seat_newcomers() {
  if (regroup_) {
    bool has_taken = false;
    for (auto it = newcomers_.begin(); it != newcomers_.end();) {
      auto& [stream, newcomer] = *it;
      if (regroup_->is_vacant(newcomer.seat)) {
        regroup_->take(newcomer.seat, {stream, std::move(newcomer.request)});
        it = newcomers_.erase(it);
        has_taken = true;
      } else {
        ++it;
      }
    }
    if (has_taken) {
      begin_epoch();
    }
    return;
  }
  const bool is_time = !newcomers_.empty() && !is_asking_ && is_announced_ && !is_ending() &&
                       membership_.state() == MembershipState::kRunning;
  if (is_time) {
    ask_for_plan_with_newcomers();
  }
}

/// While the job goes on.
void JobControl::ask_for_plan_with_newcomers() {
  is_asking_ = true;
  const JoinRequest& first = newcomers_.begin()->second.request;
  Loss loss{.reason = describe(first) + " came", .lost = {}, .left = seats_with_newcomers()};
  callbacks_.post([this, loss = std::move(loss), epoch = epoch_.epoch] {
    try {
      EpochPlan plan = options_.on_loss(loss);
      post([this, plan = std::move(plan), seats = loss.left, epoch]() mutable {
        take_newcomers(seats, std::move(plan), epoch);
      });
    } catch (const std::exception& error) {
      post([this, reason = one_line(error.what())] {
        is_asking_ = false;
        refuse_newcomers("there is no plan with it: " + reason);
      });
    }
  });
}

/// `epoch`: in which the plan for these seats was asked for.
void JobControl::take_newcomers(const std::vector<Rank>& seats, EpochPlan plan,
                                std::uint32_t epoch) {
  is_asking_ = false;
  const bool is_still_right = !regroup_ && epoch == epoch_.epoch && !is_ending() &&
                              membership_.state() == MembershipState::kRunning &&
                              seats == seats_with_newcomers();
  if (!is_still_right) {
    seat_newcomers();
    return;
  }
  std::string reason;
  for (const auto& [stream, newcomer] : newcomers_) {
    reason += (reason.empty() ? "rank " : ", rank ") + std::to_string(newcomer.seat.value()) +
              " (" + describe(newcomer.request) + ")";
  }
  end_epoch(reason + " came", {}, std::chrono::steady_clock::now());
  for (auto& [stream, newcomer] : std::exchange(newcomers_, {})) {
    regroup_->take(newcomer.seat, {stream, newcomer.request});
  }
  regroup_->set_plan(std::move(plan));
}

void JobControl::refuse_newcomers(const std::string& reason) {
  for (const auto& [stream, newcomer] : std::exchange(newcomers_, {})) {
    stream->end(MemberStream::End::kGivenUp, "rank " + std::to_string(newcomer.seat.value()) +
                                                 " (" + describe(newcomer.request) +
                                                 ") cannot join: " + reason);
  }
}

/// Counts.
bool JobControl::may_wait_for(Rank seat) {
  return options_.replacement_deadline && ++vacancies_[seat] <= kMostVacancies;
}

void JobControl::vacate(Rank seat, TimePoint time) {
  regroup_->vacate(seat, time + to_chrono(*options_.replacement_deadline));
  if (options_.on_vacant) {
    callbacks_.post([this, seat] { options_.on_vacant(seat); });
  }
}

}  // namespace rackrail::runtime
