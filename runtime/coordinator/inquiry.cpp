#include "runtime/coordinator/inquiry.hpp"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "runtime/coordinator/channel.hpp"
#include "runtime/coordinator/clock.hpp"
#include "runtime/coordinator/coordinator.grpc.pb.h"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/messages.hpp"

namespace rackrail::runtime {
namespace {

namespace proto = rackrail::coordinator::v1;

[[noreturn]] void fail(const Inquirer& inquirer, const grpc::Status& status, Duration at_most) {
  const std::string where = to_string(inquirer.coordinator) + (inquirer.tls ? " over TLS" : "");
  switch (status.error_code()) {
    case grpc::StatusCode::PERMISSION_DENIED: {
      const bool is_from_file = !inquirer.token_source.empty();
      throw ConfigError(
          ErrorContext{.file = is_from_file ? inquirer.token_source : "<environment>",
                       .where = is_from_file ? "line 1" : kJobTokenVariable,
                       .found = inquirer.token.empty() ? "no token" : "a wrong token",
                       .expected = "the token of the job whose coordinator is at " + where});
    }
    case grpc::StatusCode::UNAVAILABLE:
      throw RuntimeFailure("no coordinator of a job answers at " + where);
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      throw RuntimeFailure("no answer from a coordinator at " + where + " within " +
                           to_string(at_most));
    case grpc::StatusCode::UNIMPLEMENTED:
      throw RuntimeFailure("what listens at " + where +
                           " is no coordinator, or one of an older rackrail");
    default:
      throw RuntimeFailure("the coordinator at " + where +
                           " refused: " + one_line(status.error_message()));
  }
}

template <typename Reply, typename Request, typename Call>
Reply ask(const Inquirer& inquirer, Call call, const Request& request, Duration at_most) {
  if (!inquirer.is_network_private) {
    require_private(inquirer.coordinator, inquirer.tls);
  }
  const auto stub = proto::Coordinator::NewStub(make_channel(inquirer.coordinator, inquirer.tls));
  grpc::ClientContext context;
  context.AddMetadata(kTokenKey, inquirer.token);
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::microseconds>(to_chrono(at_most)));
  Reply reply;
  const grpc::Status status = (stub.get()->*call)(&context, request, &reply);
  if (!status.ok()) {
    fail(inquirer, status, at_most);
  }
  return reply;
}

}  // namespace

JobStatus ask_for_status(const Inquirer& inquirer, Duration at_most) {
  return from_message(ask<proto::JobStatus>(inquirer, &proto::Coordinator::Stub::Status,
                                            proto::StatusRequest(), at_most));
}

ReplanAnswer ask_for_replan(const Inquirer& inquirer, Duration at_most) {
  return from_message(ask<proto::ReplanReply>(inquirer, &proto::Coordinator::Stub::Replan,
                                              proto::ReplanRequest(), at_most));
}

}  // namespace rackrail::runtime
