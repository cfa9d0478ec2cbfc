#include "runtime/coordinator/server.hpp"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/coordinator.grpc.pb.h"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_control.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/lasting_ports.hpp"
#include "runtime/coordinator/messages.hpp"

namespace rackrail::runtime {
namespace {

namespace proto = rackrail::coordinator::v1;

constexpr std::chrono::milliseconds kPortRetry{50};
constexpr std::chrono::seconds kPortPatience{5};
constexpr std::int64_t kLongestSilence = 3600'000'000'000'000;  // an hour, in picoseconds

void check(const CoordinatorOptions& options) {
  constexpr std::size_t kLargestPlan = kLargestWelcome / 2;
  if (options.plan.size() > kLargestPlan) {
    throw ConfigError(ErrorContext{.file = "",
                                   .where = "the plan's binary form",
                                   .found = std::to_string(options.plan.size()) + " bytes",
                                   .expected = "at most " + std::to_string(kLargestPlan)});
  }
  if (options.token.empty() && !is_loopback(options.listen.host)) {
    throw ConfigError(ErrorContext{
        .file = "<environment>",
        .where = kJobTokenVariable,
        .found = "nothing",
        .expected = "a secret that all workers have, because the coordinator listens at " +
                    to_string(options.listen)});
  }
}

std::shared_ptr<grpc::ServerCredentials> credentials(const std::optional<TlsCertificates>& tls) {
  if (!tls) {
    return grpc::InsecureServerCredentials();
  }
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls->authority;
  options.pem_key_cert_pairs = {{.private_key = tls->key, .cert_chain = tls->certificate}};
  return grpc::SslServerCredentials(options);
}

/// The gRPC stream of one member. gRPC calls the reactions (On…) on threads of its own, which turn
/// them into tasks of the service thread, where everything else happens.
class JoinStream final : public grpc::ServerWriteReactor<proto::Event>, public MemberStream {
 public:
  /// `on_done` is called on the service thread after gRPC's last word: nobody else has a pointer
  /// to the stream then.
  JoinStream(JobControl& control, const CoordinatorOptions& options,
             std::function<void(JoinStream*)> on_done)
      : control_(control), options_(options), on_done_(std::move(on_done)) {}

  void welcome(Rank rank, const EpochRecord& epoch,
               const std::vector<std::vector<std::byte>>& addresses) override {
    proto::Event event;
    proto::Welcome& message = *event.mutable_welcome();
    message.set_rank(rank.value());
    message.set_world_size(static_cast<std::uint32_t>(addresses.size()));
    message.set_epoch(epoch.epoch);
    for (const std::vector<std::byte>& address : addresses) {
      message.add_addresses(address.data(), address.size());
    }
    message.set_plan(epoch.plan.plan);
    message.set_step(epoch.step);
    message.set_seat(epoch.seats.at(rank.index()).value());
    for (const Rank newcomer : epoch.newcomers) {
      message.add_newcomers(newcomer.value());
    }
    message.set_checkpoint(epoch.checkpoint);
    message.set_job_options(options_.job_options);
    message.set_heartbeat_period_ps(options_.heartbeat_period.picoseconds());
    message.set_heartbeat_timeout_ps(options_.membership.heartbeat_timeout.picoseconds());
    send(std::move(event));
  }

  void abort(const std::string& reason, bool come_back) override {
    proto::Event event;
    event.mutable_abort()->set_reason(reason);
    event.mutable_abort()->set_come_back(come_back);
    send(std::move(event));
  }

  void finish() override {
    proto::Event event;
    event.mutable_finish();
    send(std::move(event));
  }

  void gathered(std::uint32_t round, const std::vector<std::string>& parts) override {
    proto::Event event;
    proto::Gathered& message = *event.mutable_gathered();
    message.set_round(round);
    for (const std::string& part : parts) {
      message.add_parts(part);
    }
    send(std::move(event));
  }

  void end(End how, const std::string& reason) override {
    if (ending_) {
      return;
    }
    ending_ = true;
    switch (how) {
      case End::kLeft:
        status_ = grpc::Status::OK;
        break;
      case End::kAborted:
        status_ = grpc::Status(grpc::StatusCode::ABORTED, reason);
        break;
      case End::kGivenUp:  // which the client tells from the end of the whole job
        status_ = grpc::Status(grpc::StatusCode::NOT_FOUND, reason);
        break;
      case End::kRefused:
        status_ = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, reason);
        break;
      case End::kBroken:
        queue_.resize(writing_ ? 1 : 0);  // nobody reads the rest
        status_ = grpc::Status(grpc::StatusCode::CANCELLED, reason);
        break;
    }
    go_on();
  }

  void OnWriteDone(bool ok) override {
    control_.post([this, ok] {
      writing_ = false;
      queue_.pop_front();
      if (!ok) {
        control_.broken(*this);
      }
      go_on();
    });
  }
  void OnCancel() override {
    control_.post([this] { control_.broken(*this); });
  }
  void OnDone() override {
    control_.post([this] {
      const auto on_done = on_done_;  // its owner goes with the call
      on_done(this);
    });
  }

 private:
  void send(proto::Event event) {
    if (!ending_) {
      queue_.push_back(std::move(event));
      go_on();
    }
  }

  void go_on() {
    if (writing_ || ended_) {
      return;
    }
    if (!queue_.empty()) {
      writing_ = true;
      StartWrite(&queue_.front());
    } else if (ending_) {
      ended_ = true;
      Finish(status_);
    }
  }

  JobControl& control_;
  const CoordinatorOptions& options_;
  const std::function<void(JoinStream*)> on_done_;
  std::deque<proto::Event> queue_;  // the front stays where it is while it is written
  bool writing_ = false;
  bool ending_ = false;
  bool ended_ = false;
  grpc::Status status_;
};

/// A stream that ends before it began.
class RefusedStream final : public grpc::ServerWriteReactor<proto::Event> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

struct CoordinatorServer::Impl final : proto::Coordinator::CallbackService {
  explicit Impl(CoordinatorOptions given) : options(std::move(given)), control(options) {
    check(options);
    prepare_grpc();
    listen();
  }

  ~Impl() override {
    if (server != nullptr) {
      control.post([this] { control.end_all("the coordinator was shut down"); });
      server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    }
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return open_streams == 0; });
    }
    control.finish();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// What is kept names the address, for those who come back after a kill: see lasting_ports().
  void listen() {
    if (options.recovered) {
      const auto deadline = std::chrono::steady_clock::now() + kPortPatience;
      while (!listens_at(options.listen.port) && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kPortRetry);
      }
    } else if (options.keep && options.listen.port == 0) {
      const std::vector<std::uint16_t> ports = lasting_ports();
      std::ignore = std::any_of(ports.begin(), ports.end(),
                                [this](std::uint16_t port) { return listens_at(port); }) ||
                    listens_at(0);
    } else {
      listens_at(options.listen.port);
    }
    if (server == nullptr) {
      throw RuntimeFailure("the coordinator cannot listen at " + to_string(options.listen) +
                           ": the port is taken or the address is not of this host");
    }
  }

  bool listens_at(std::uint16_t given) {
    grpc::ServerBuilder builder;
    int port = 0;
    // Otherwise two coordinators could share a port, and each would get some of the workers.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // A message is read before its token can be: so few at a time from one connection.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsAtOnce);
    builder.SetMaxReceiveMessageSize(kLargestReport);
    builder.AddListeningPort(to_string(HostPort{options.listen.host, given}),
                             credentials(options.tls), &port);
    builder.RegisterService(this);
    server = builder.BuildAndStart();
    if (server == nullptr || port <= 0) {
      server.reset();
      return false;
    }
    address = {options.listen.host, static_cast<std::uint16_t>(port)};
    return true;
  }

  bool may_talk(const grpc::CallbackServerContext& context) const {
    if (options.token.empty()) {
      return true;
    }
    const auto& metadata = context.client_metadata();
    const auto it = metadata.find(kTokenKey);
    return it != metadata.end() &&
           same_token(std::string_view(it->second.data(), it->second.size()), options.token);
  }

  static grpc::Status not_welcome() {
    return {grpc::StatusCode::PERMISSION_DENIED, "the job's token is missing or wrong"};
  }

  grpc::ServerWriteReactor<proto::Event>* Join(grpc::CallbackServerContext* context,
                                               const proto::JoinRequest* request) override {
    if (!may_talk(*context)) {
      return new RefusedStream(not_welcome());
    }
    if (const std::string problem = malformed(*request); !problem.empty()) {
      return new RefusedStream(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, problem));
    }
    {
      const std::lock_guard lock(mutex);
      ++open_streams;
    }
    auto* stream = new JoinStream(control, options, [this](JoinStream* done) { bury(done); });
    control.post([this, stream, message = from_message(*request)]() mutable {
      control.join(*stream, std::move(message));
    });
    return stream;
  }

  void bury(JoinStream* stream) {
    control.forget(*stream);
    delete stream;
    const std::lock_guard lock(mutex);
    --open_streams;
    changed.notify_all();
  }

  /// Runs `act` on the service thread, then answers; refuses where the request has a problem.
  template <typename Act>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Act act,
                                   const std::string& problem = {}) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (!may_talk(*context) || !problem.empty()) {
      reactor->Finish(may_talk(*context) ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, problem)
                                         : not_welcome());
      return reactor;
    }
    // Request and response live until Finish.
    control.post([reactor, act = std::move(act)] {
      act();
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  /// Calls `act(rank)` if the speaker is a member of this epoch.
  template <typename Act>
  void as_member(const proto::Member& member, Act act) {
    const std::uint32_t epoch = control.membership().epoch();
    if (epoch != 0 && member.epoch() == epoch) {
      act(Rank(std::size_t{member.rank()}));
    }
  }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const proto::HeartbeatRequest* request,
                                      proto::HeartbeatReply* reply) override {
    return answer(context, [this, request, reply] {
      as_member(request->member(), [&](Rank rank) {
        control.membership().heartbeat(
            rank,
            {request->step(), request->loss(),
             Duration(std::max<std::int64_t>(0, request->step_time_ps()))},
            std::chrono::steady_clock::now());
        control.measured(measured_steps(*request, control.membership().options().world_size));
      });
      const bool come_back = control.is_over_for(request->member().epoch());
      reply->set_aborted(come_back || control.membership().state() == MembershipState::kAborted);
      reply->set_come_back(come_back);
      reply->set_reason(come_back ? "the job goes on in another epoch"
                                  : control.membership().abort_reason().line);
    });
  }

  grpc::ServerUnaryReactor* ReportCheckpoint(grpc::CallbackServerContext* context,
                                             const proto::CheckpointReport* request,
                                             proto::Acknowledged*) override {
    const auto act = [this, request] {
      as_member(request->member(), [&](Rank rank) {
        control.membership().report_checkpoint(rank, request->step(), from_message(*request));
      });
    };
    return answer(context, act, malformed(*request));
  }

  grpc::ServerUnaryReactor* ReportResult(grpc::CallbackServerContext* context,
                                         const proto::ResultReport* request,
                                         proto::Acknowledged*) override {
    return answer(context, [this, request] {
      as_member(request->member(), [&](Rank rank) {
        control.membership().report_result(rank, request->payload(),
                                           std::chrono::steady_clock::now());
      });
    });
  }

  grpc::ServerUnaryReactor* Contribute(grpc::CallbackServerContext* context,
                                       const proto::Contribution* request,
                                       proto::Acknowledged*) override {
    return answer(context, [this, request] {
      as_member(request->member(), [&](Rank rank) {
        control.membership().contribute(rank, request->round(), request->part());
      });
    });
  }

  grpc::ServerUnaryReactor* ReportTransportError(grpc::CallbackServerContext* context,
                                                 const proto::TransportErrorReport* request,
                                                 proto::Acknowledged*) override {
    return answer(context, [this, request] {
      as_member(request->member(), [&](Rank rank) {
        std::optional<Rank> peer;
        if (request->has_peer()) {
          peer = Rank(static_cast<std::size_t>(request->peer()));
        }
        std::optional<Duration> silence;
        if (request->has_silence_ps()) {
          silence = Duration(std::clamp<std::int64_t>(request->silence_ps(), 0, kLongestSilence));
        }
        control.membership().report_transport_error(rank, peer, one_line(request->reason()),
                                                    silence, std::chrono::steady_clock::now());
      });
    });
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const proto::LeaveRequest* request,
                                  proto::Acknowledged*) override {
    return answer(context, [this, request] {
      as_member(request->member(), [&](Rank rank) {
        control.leave(rank, request->ok(), {one_line(request->reason()), request->bad_input()});
      });
    });
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const proto::StatusRequest* /*request*/,
                                   proto::JobStatus* reply) override {
    return answer(context, [this, reply] {
      put_status(control.status(std::chrono::steady_clock::now()), *reply);
    });
  }

  grpc::ServerUnaryReactor* Replan(grpc::CallbackServerContext* context,
                                   const proto::ReplanRequest* /*request*/,
                                   proto::ReplanReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (!may_talk(*context)) {
      reactor->Finish(not_welcome());
      return reactor;
    }
    control.post([this, reactor, reply] {
      control.replan([reactor, reply](const ReplanAnswer& answer) {
        put_answer(answer, *reply);
        reactor->Finish(grpc::Status::OK);
      });
    });
    return reactor;
  }

  CoordinatorOptions options;
  HostPort address;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t open_streams = 0;  // guarded by mutex
  JobControl control;
  std::unique_ptr<grpc::Server> server;  // last: its threads use everything above
};

CoordinatorServer::CoordinatorServer(CoordinatorOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

CoordinatorServer::~CoordinatorServer() = default;

const HostPort& CoordinatorServer::address() const { return impl_->address; }

void CoordinatorServer::stop(const std::string& reason) { impl_->control.stop(reason); }

bool CoordinatorServer::has_started() const { return impl_->control.has_started(); }

void CoordinatorServer::worker_ended(Rank seat, std::int64_t pid) {
  impl_->control.post([&control = impl_->control, seat, pid] { control.worker_ended(seat, pid); });
}

std::optional<CoordinatorOutcome> CoordinatorServer::wait_for(Duration at_most) {
  return impl_->control.wait_for(at_most);
}

}  // namespace rackrail::runtime
