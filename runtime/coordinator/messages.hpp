// The protocol's messages and the types that they stand for (coordinator.proto).
#pragma once

#include <string>
#include <vector>

#include "runtime/coordinator/client.hpp"
#include "runtime/coordinator/job_status.hpp"
#include "runtime/coordinator/membership.hpp"
#include "runtime/coordinator/progress.hpp"

namespace rackrail::coordinator::v1 {
class CheckpointReport;
class HeartbeatRequest;
class JobStatus;
class JoinRequest;
class ReplanReply;
class Welcome;
}  // namespace rackrail::coordinator::v1

namespace rackrail::runtime {

/// Empty when the request may be looked at; otherwise what is wrong with its sizes.
std::string malformed(const coordinator::v1::JoinRequest& message);

/// The same of a report: also names that are not those of files in the checkpoint's folder.
std::string malformed(const coordinator::v1::CheckpointReport& message);

JoinRequest from_message(const coordinator::v1::JoinRequest& message);
coordinator::v1::JoinRequest to_message(const JoinRequest& request);

std::vector<CheckpointFile> from_message(const coordinator::v1::CheckpointReport& message);
void put_files(const std::vector<CheckpointFile>& files,
               coordinator::v1::CheckpointReport& message);

/// What cannot be (ranks beyond `world_size`, negative figures, more sources than there are ranks)
/// is left out, and so are the measured steps after the first kMostMeasured.
std::vector<StepMeasurement> measured_steps(const coordinator::v1::HeartbeatRequest& message,
                                            std::size_t world_size);
void put_measured(const StepMeasurement& step, coordinator::v1::HeartbeatRequest& message);
/// In one heartbeat.
inline constexpr int kMostMeasured = 64;

/// Text and figures of the message may be anything: they come out as one line each and not
/// negative, and what is about ranks that there are not is left out.
JobStatus from_message(const coordinator::v1::JobStatus& message);
void put_status(const JobStatus& status, coordinator::v1::JobStatus& message);
ReplanAnswer from_message(const coordinator::v1::ReplanReply& message);
void put_answer(const ReplanAnswer& answer, coordinator::v1::ReplanReply& message);

/// Takes the large parts out of the message.
Welcome take_welcome(coordinator::v1::Welcome& message);

}  // namespace rackrail::runtime
