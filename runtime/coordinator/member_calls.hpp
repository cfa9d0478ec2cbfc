// What a member or a visitor says, made an act of the job: one function per call of the protocol,
// on the service thread. What they are given may be anything; service.cpp brings it.
#pragma once

namespace rackrail::coordinator::v1 {
class Acknowledged;
class CheckpointReport;
class Contribution;
class HeartbeatReply;
class HeartbeatRequest;
class JobStatus;
class LeaveRequest;
class ResultReport;
class StatusRequest;
class TransportErrorReport;
}  // namespace rackrail::coordinator::v1

namespace rackrail::runtime {

class JobControl;

// Members of another epoch are not heard.
void heartbeat(JobControl& control, const coordinator::v1::HeartbeatRequest& request,
               coordinator::v1::HeartbeatReply& reply);
/// Not for one that malformed() complains of.
void report_checkpoint(JobControl& control, const coordinator::v1::CheckpointReport& report,
                       coordinator::v1::Acknowledged& reply);
void report_result(JobControl& control, const coordinator::v1::ResultReport& report,
                   coordinator::v1::Acknowledged& reply);
void contribute(JobControl& control, const coordinator::v1::Contribution& contribution,
                coordinator::v1::Acknowledged& reply);
void report_transport_error(JobControl& control,
                            const coordinator::v1::TransportErrorReport& report,
                            coordinator::v1::Acknowledged& reply);
void leave(JobControl& control, const coordinator::v1::LeaveRequest& request,
           coordinator::v1::Acknowledged& reply);

void status(JobControl& control, const coordinator::v1::StatusRequest& request,
            coordinator::v1::JobStatus& reply);

}  // namespace rackrail::runtime
