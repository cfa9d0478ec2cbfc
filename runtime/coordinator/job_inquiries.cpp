// What the coordinator answers to who is no worker: how the job is, and what came of a request for
// another plan.
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_control.hpp"

namespace rackrail::runtime {

JobState JobControl::state() const {
  if (regroup_) {
    return JobState::kRegrouping;
  }
  switch (membership_.state()) {
    case MembershipState::kGathering:
      return JobState::kGathering;
    case MembershipState::kRunning:
      return is_announced_ ? JobState::kRunning : JobState::kRegrouping;
    case MembershipState::kFinished:
      return JobState::kFinished;
    case MembershipState::kAborted:
      break;
  }
  return JobState::kAborted;
}

/// Between two epochs, of those who are expected in the next.
std::vector<MemberStatus> JobControl::members(TimePoint time) const {
  std::vector<MemberStatus> result;
  if (!regroup_) {
    result = membership_.members(time);
    for (MemberStatus& member : result) {
      if (member.rank && member.rank->index() < epoch_.seats.size()) {
        member.seat = epoch_.seats[member.rank->index()];
      }
    }
    return result;
  }
  for (const Rank seat : regroup_->left()) {
    MemberStatus& member = result.emplace_back();
    member.rank = Rank(result.size() - 1);
    member.seat = seat;
    if (const auto come = regroup_->members().find(seat); come != regroup_->members().end()) {
      member.host = come->second.request.host;
      member.pid = come->second.request.pid;
      member.is_present = true;
    }
  }
  return result;
}

const std::string& JobControl::plan_digest() const {
  return epoch_.seats.empty() ? options_.membership.plan_digest : epoch_.plan.digest;
}

JobStatus JobControl::status(TimePoint time) const {
  JobStatus status;
  status.state = state();
  status.epoch = epoch_.seats.empty() ? 0 : epoch_.epoch;
  status.plan_digest = plan_digest();
  status.members = members(time);
  status.progress = membership_.progress();
  if (regroup_) {
    status.progress.world_size = status.members.size();
    status.progress.joined = regroup_->members().size();
  }
  // Who has just come to an epoch has not said yet what all have.
  status.progress.step = std::max(status.progress.step, epoch_.step);
  status.rates = pair_rates_.rates();
  if (status.rates.size() > kMostPairRates) {
    status.rates_left_out = status.rates.size() - kMostPairRates;
    status.rates.resize(kMostPairRates);
  }
  return status;
}

std::optional<std::string> JobControl::objection_to_replan() const {
  if (!options_.on_replan) {
    return "the job was not started so that it could be planned again";
  }
  if (is_replanning_) {
    return "somebody else has just asked for another plan";
  }
  if (state() == JobState::kGathering) {
    return "not all workers have come yet";
  }
  if (state() == JobState::kRegrouping) {
    return "an epoch of the membership is just beginning";
  }
  if (state() != JobState::kRunning || is_ending()) {
    return "the job is about to end";
  }
  if (membership_.progress().step == 0) {
    return "no step of this epoch is done yet";
  }
  return std::nullopt;
}

void JobControl::replan(std::function<void(const ReplanAnswer&)> answer) {
  if (std::optional<std::string> objection = objection_to_replan()) {
    answer({.epoch = 0, .reason = *std::move(objection), .plan_digest = plan_digest()});
    return;
  }
  is_replanning_ = true;
  callbacks_.post([this, answer = std::move(answer), epoch = epoch_.epoch] {
    PlanOffer offer;
    try {
      offer = options_.on_replan();
    } catch (const std::exception& error) {
      offer.reason = "no plan: " + one_line(error.what());
    }
    post([this, answer, offer = std::move(offer), epoch] {
      is_replanning_ = false;
      answer(answer_with(offer, epoch));
    });
  });
}

/// `epoch`: for which it is offered.
ReplanAnswer JobControl::answer_with(PlanOffer offer, std::uint32_t epoch) {
  ReplanAnswer answer{.epoch = 0,
                      .reason = offer.reason,
                      .plan_digest = epoch_.plan.digest,
                      .kept_step_time = offer.kept_step_time,
                      .new_step_time = offer.new_step_time};
  if (!offer.plan) {
    return answer;
  }
  const std::string digest = offer.plan->digest;
  if (change_plan({.reason = offer.reason, .plan = *std::move(offer.plan)}, epoch)) {
    answer.epoch = membership_.options().epoch;
    answer.plan_digest = digest;
  } else {
    answer.reason = "the job went on otherwise, or to its end, before there was a plan";
  }
  return answer;
}

}  // namespace rackrail::runtime
