// Messages to and from who is no worker.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "runtime/coordinator/coordinator.pb.h"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/messages.hpp"

namespace rackrail::runtime {
namespace {

namespace proto = rackrail::coordinator::v1;

constexpr std::pair<JobState, proto::JobStatus::State> kStates[] = {
    {JobState::kGathering, proto::JobStatus::GATHERING},
    {JobState::kRunning, proto::JobStatus::RUNNING},
    {JobState::kRegrouping, proto::JobStatus::REGROUPING},
    {JobState::kFinished, proto::JobStatus::FINISHED},
    {JobState::kAborted, proto::JobStatus::ABORTED}};

Duration duration(std::int64_t picoseconds) {
  return Duration(std::max<std::int64_t>(0, picoseconds));
}

Rank rank(std::uint32_t value) { return Rank(std::size_t{value}); }

MemberStatus from_message(const proto::MemberStatus& message) {
  MemberStatus member;
  if (message.has_rank()) {
    member.rank = rank(message.rank());
  }
  if (message.has_seat()) {
    member.seat = rank(message.seat());
  }
  member.host = one_line(message.host());
  member.pid = message.pid();
  member.is_present = message.present();
  member.silence = duration(message.silence_ps());
  member.progress = {message.step(), message.loss(), duration(message.step_time_ps())};
  return member;
}

void put_member(const MemberStatus& member, proto::MemberStatus& message) {
  if (member.rank) {
    message.set_rank(member.rank->value());
  }
  if (member.seat) {
    message.set_seat(member.seat->value());
  }
  message.set_host(member.host);
  message.set_pid(member.pid);
  message.set_present(member.is_present);
  message.set_silence_ps(member.silence.picoseconds());
  message.set_step(member.progress.step);
  message.set_step_time_ps(member.progress.step_time.picoseconds());
  message.set_loss(member.progress.loss);
}

}  // namespace

JobStatus from_message(const proto::JobStatus& message) {
  JobStatus status;
  for (const auto& [state, sent] : kStates) {
    if (message.state() == sent) {
      status.state = state;
    }
  }
  status.epoch = message.epoch();
  status.plan_digest = one_line(message.plan_digest());
  status.progress = {.joined = message.joined(),
                     .world_size = message.world_size(),
                     .step = message.step(),
                     .loss = message.loss(),
                     .step_time = duration(message.step_time_ps())};
  for (const proto::MemberStatus& member : message.members()) {
    status.members.push_back(from_message(member));
  }
  for (const proto::PairRate& one : message.rates()) {
    if (one.source() < message.world_size() && one.destination() < message.world_size() &&
        one.bytes_per_second() > 0) {
      status.rates.push_back(
          {rank(one.source()), rank(one.destination()), Bandwidth(one.bytes_per_second())});
    }
  }
  status.rates_left_out = message.rates_left_out();
  return status;
}

void put_status(const JobStatus& status, proto::JobStatus& message) {
  for (const auto& [state, sent] : kStates) {
    if (status.state == state) {
      message.set_state(sent);
    }
  }
  message.set_epoch(status.epoch);
  message.set_plan_digest(status.plan_digest);
  message.set_world_size(static_cast<std::uint32_t>(status.progress.world_size));
  message.set_joined(static_cast<std::uint32_t>(status.progress.joined));
  message.set_step(status.progress.step);
  message.set_step_time_ps(status.progress.step_time.picoseconds());
  message.set_loss(status.progress.loss);
  for (const MemberStatus& member : status.members) {
    put_member(member, *message.add_members());
  }
  for (const PairRate& one : status.rates) {
    proto::PairRate& rate = *message.add_rates();
    rate.set_source(one.source.value());
    rate.set_destination(one.destination.value());
    rate.set_bytes_per_second(one.rate.bytes_per_second());
  }
  message.set_rates_left_out(status.rates_left_out);
}

ReplanAnswer from_message(const proto::ReplanReply& message) {
  ReplanAnswer answer{.epoch = message.epoch(),
                      .reason = one_line(message.reason()),
                      .plan_digest = one_line(message.plan_digest())};
  if (message.has_kept_step_time_ps()) {
    answer.kept_step_time = duration(message.kept_step_time_ps());
  }
  if (message.has_new_step_time_ps()) {
    answer.new_step_time = duration(message.new_step_time_ps());
  }
  return answer;
}

void put_answer(const ReplanAnswer& answer, proto::ReplanReply& message) {
  message.set_epoch(answer.epoch);
  message.set_reason(answer.reason);
  message.set_plan_digest(answer.plan_digest);
  if (answer.kept_step_time) {
    message.set_kept_step_time_ps(answer.kept_step_time->picoseconds());
  }
  if (answer.new_step_time) {
    message.set_new_step_time_ps(answer.new_step_time->picoseconds());
  }
}

}  // namespace rackrail::runtime
