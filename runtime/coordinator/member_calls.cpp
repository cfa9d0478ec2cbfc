#include "runtime/coordinator/member_calls.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/coordinator/coordinator.pb.h"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_control.hpp"
#include "runtime/coordinator/messages.hpp"

namespace rackrail::runtime {
namespace {

namespace proto = rackrail::coordinator::v1;

constexpr std::int64_t kLongestSilence = 3600'000'000'000'000;  // an hour, in picoseconds

/// Calls `act(rank)` if the speaker is a member of this epoch.
template <typename Act>
void as_member(const JobControl& control, const proto::Member& member, Act act) {
  const std::uint32_t epoch = control.membership().epoch();
  if (epoch != 0 && member.epoch() == epoch) {
    act(Rank(std::size_t{member.rank()}));
  }
}

}  // namespace

void heartbeat(JobControl& control, const proto::HeartbeatRequest& request,
               proto::HeartbeatReply& reply) {
  as_member(control, request.member(), [&](Rank rank) {
    control.membership().heartbeat(rank,
                                   {request.step(), request.loss(),
                                    Duration(std::max<std::int64_t>(0, request.step_time_ps()))},
                                   std::chrono::steady_clock::now());
    control.measured(measured_steps(request, control.membership().options().world_size));
  });
  const bool come_back = control.is_over_for(request.member().epoch());
  reply.set_aborted(come_back || control.membership().state() == MembershipState::kAborted);
  reply.set_come_back(come_back);
  reply.set_reason(come_back ? "the job goes on in another epoch"
                             : control.membership().abort_reason().line);
}

void report_checkpoint(JobControl& control, const proto::CheckpointReport& report,
                       proto::Acknowledged& /*reply*/) {
  as_member(control, report.member(), [&](Rank rank) {
    control.membership().report_checkpoint(rank, report.step(), from_message(report));
  });
}

void report_result(JobControl& control, const proto::ResultReport& report,
                   proto::Acknowledged& /*reply*/) {
  as_member(control, report.member(), [&](Rank rank) {
    control.membership().report_result(
        rank, report.payload(), report.has_steps() ? std::optional(report.steps()) : std::nullopt,
        std::chrono::steady_clock::now());
  });
}

void contribute(JobControl& control, const proto::Contribution& contribution,
                proto::Acknowledged& /*reply*/) {
  as_member(control, contribution.member(), [&](Rank rank) {
    control.membership().contribute(rank, contribution.round(), contribution.part(),
                                    std::chrono::steady_clock::now());
  });
}

void report_transport_error(JobControl& control, const proto::TransportErrorReport& report,
                            proto::Acknowledged& /*reply*/) {
  as_member(control, report.member(), [&](Rank rank) {
    std::optional<Rank> peer;
    if (report.has_peer()) {
      peer = Rank(static_cast<std::size_t>(report.peer()));
    }
    std::optional<Duration> silence;
    if (report.has_silence_ps()) {
      silence = Duration(std::clamp<std::int64_t>(report.silence_ps(), 0, kLongestSilence));
    }
    control.membership().report_transport_error(rank, peer, one_line(report.reason()), silence,
                                                std::chrono::steady_clock::now());
  });
}

void leave(JobControl& control, const proto::LeaveRequest& request,
           proto::Acknowledged& /*reply*/) {
  as_member(control, request.member(), [&](Rank rank) {
    control.leave(rank, request.ok(), {one_line(request.reason()), request.bad_input()});
  });
}

void status(JobControl& control, const proto::StatusRequest& /*request*/, proto::JobStatus& reply) {
  put_status(control.status(std::chrono::steady_clock::now()), reply);
}

}  // namespace rackrail::runtime
