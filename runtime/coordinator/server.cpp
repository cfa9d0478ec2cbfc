#include "runtime/coordinator/server.hpp"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/calls.hpp"
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
class JoinStream final : public grpc::ServerGenericBidiReactor, public MemberStream {
 public:
  /// `on_done` is called on the service thread after gRPC's last word: nobody else has a pointer
  /// to the stream then.
  JoinStream(JobControl& control, const CoordinatorOptions& options,
             std::function<void(JoinStream*)> on_done)
      : control_(control), options_(options), on_done_(std::move(on_done)) {
    StartRead(&request_);
  }

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
    send(event);
  }

  void abort(const std::string& reason, bool come_back) override {
    proto::Event event;
    event.mutable_abort()->set_reason(reason);
    event.mutable_abort()->set_come_back(come_back);
    send(event);
  }

  void finish() override {
    proto::Event event;
    event.mutable_finish();
    send(event);
  }

  void gathered(std::uint32_t round, const std::vector<std::string>& parts) override {
    proto::Event event;
    proto::Gathered& message = *event.mutable_gathered();
    message.set_round(round);
    for (const std::string& part : parts) {
      message.add_parts(part);
    }
    send(event);
  }

  void end(End how, const std::string& reason) override {
    if (how == End::kBroken && !ending_) {
      queue_.resize(writing_ ? 1 : 0);  // nobody reads the rest
    }
    end_with(status_of(how, reason));
  }

  void OnReadDone(bool ok) override {
    proto::JoinRequest request;
    const std::string problem =
        ok && take_message(request_, request) ? malformed(request) : "no request to join";
    if (!problem.empty()) {
      control_.post(
          [this, problem] { end_with(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, problem)); });
      return;
    }
    control_.post([this, message = from_message(request)]() mutable {
      if (!ending_) {
        control_.join(*this, std::move(message));
      }
    });
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
  static grpc::Status status_of(End how, const std::string& reason) {
    switch (how) {
      case End::kLeft:
        return grpc::Status::OK;
      case End::kAborted:
        return {grpc::StatusCode::ABORTED, reason};
      case End::kGivenUp:  // which the client tells from the end of the whole job
        return {grpc::StatusCode::NOT_FOUND, reason};
      case End::kRefused:
        return {grpc::StatusCode::FAILED_PRECONDITION, reason};
      case End::kBroken:
        break;
    }
    return {grpc::StatusCode::CANCELLED, reason};
  }

  void end_with(grpc::Status status) {
    if (!ending_) {
      ending_ = true;
      status_ = std::move(status);
      go_on();
    }
  }

  void send(const proto::Event& event) {
    if (!ending_) {
      queue_.push_back(serialized(event));
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
  grpc::ByteBuffer request_;
  std::deque<grpc::ByteBuffer> queue_;  // the front stays where it is while it is written
  bool writing_ = false;
  bool ending_ = false;
  bool ended_ = false;
  grpc::Status status_;
};

}  // namespace

struct CoordinatorServer::Impl {
  explicit Impl(CoordinatorOptions given) : options(std::move(given)), control(options) {
    check(options);
    prepare_grpc();
    listen();
  }

  ~Impl() {
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
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostCallsAtOnce);
    // What may come over a stream before somebody reads it does not grow with the connection's
    // rate.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.SetMaxReceiveMessageSize(kLargestReport);
    builder.AddListeningPort(to_string(HostPort{options.listen.host, given}),
                             credentials(options.tls), &port);
    calls = std::make_unique<Calls>(*this);
    builder.RegisterCallbackGenericService(calls.get());
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

  /// Where all calls begin, with nothing of their messages.
  grpc::ServerGenericBidiReactor* begin(const grpc::GenericCallbackServerContext& context) {
    if (!may_talk(context)) {
      return new RefusedCall(not_welcome());
    }
    const auto method = methods.find(context.method());
    if (method == methods.end()) {
      return new RefusedCall({grpc::StatusCode::UNIMPLEMENTED, "no such call"});
    }
    return method->second();
  }

  grpc::ServerGenericBidiReactor* join() {
    {
      const std::lock_guard lock(mutex);
      ++open_streams;
    }
    return new JoinStream(control, options, [this](JoinStream* done) { bury(done); });
  }

  void bury(JoinStream* stream) {
    control.forget(*stream);
    delete stream;
    const std::lock_guard lock(mutex);
    --open_streams;
    changed.notify_all();
  }

  /// Runs `act` on the service thread, then answers; refuses where the request has a problem.
  template <typename Request, typename Reply>
  grpc::ServerGenericBidiReactor* answer(void (Impl::*act)(const Request&, Reply&)) {
    using Call = UnaryCall<Request, Reply>;
    return new Call([this, act](Call& call) {
      if (const std::string problem = problem_of(call.request()); !problem.empty()) {
        call.finish({grpc::StatusCode::INVALID_ARGUMENT, problem});
        return;
      }
      // The call lives until it is finished.
      control.post([this, act, &call] {
        (this->*act)(call.request(), call.reply());
        call.finish(grpc::Status::OK);
      });
    });
  }
  template <typename Request>
  static std::string problem_of(const Request& /*request*/) {
    return {};
  }
  static std::string problem_of(const proto::CheckpointReport& report) { return malformed(report); }

  /// Calls `act(rank)` if the speaker is a member of this epoch.
  template <typename Act>
  void as_member(const proto::Member& member, Act act) {
    const std::uint32_t epoch = control.membership().epoch();
    if (epoch != 0 && member.epoch() == epoch) {
      act(Rank(std::size_t{member.rank()}));
    }
  }

  void heartbeat(const proto::HeartbeatRequest& request, proto::HeartbeatReply& reply) {
    as_member(request.member(), [&](Rank rank) {
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

  void report_checkpoint(const proto::CheckpointReport& report, proto::Acknowledged& /*reply*/) {
    as_member(report.member(), [&](Rank rank) {
      control.membership().report_checkpoint(rank, report.step(), from_message(report));
    });
  }

  void report_result(const proto::ResultReport& report, proto::Acknowledged& /*reply*/) {
    as_member(report.member(), [&](Rank rank) {
      control.membership().report_result(rank, report.payload(), std::chrono::steady_clock::now());
    });
  }

  void contribute(const proto::Contribution& contribution, proto::Acknowledged& /*reply*/) {
    as_member(contribution.member(), [&](Rank rank) {
      control.membership().contribute(rank, contribution.round(), contribution.part());
    });
  }

  void report_transport_error(const proto::TransportErrorReport& report,
                              proto::Acknowledged& /*reply*/) {
    as_member(report.member(), [&](Rank rank) {
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

  void leave(const proto::LeaveRequest& request, proto::Acknowledged& /*reply*/) {
    as_member(request.member(), [&](Rank rank) {
      control.leave(rank, request.ok(), {one_line(request.reason()), request.bad_input()});
    });
  }

  void status(const proto::StatusRequest& /*request*/, proto::JobStatus& reply) {
    put_status(control.status(std::chrono::steady_clock::now()), reply);
  }

  /// Answered once there is a plan, or none.
  grpc::ServerGenericBidiReactor* replan() {
    using Call = UnaryCall<proto::ReplanRequest, proto::ReplanReply>;
    return new Call([this](Call& call) {
      control.post([this, &call] {
        control.replan([&call](const ReplanAnswer& answer) {
          put_answer(answer, call.reply());
          call.finish(grpc::Status::OK);
        });
      });
    });
  }

  using Methods = std::map<std::string, std::function<grpc::ServerGenericBidiReactor*()>>;
  Methods make_methods() {
    const std::string service = "/" + std::string(proto::Coordinator::service_full_name()) + "/";
    return {
        {service + "Join", [this] { return join(); }},
        {service + "Heartbeat", [this] { return answer(&Impl::heartbeat); }},
        {service + "ReportCheckpoint", [this] { return answer(&Impl::report_checkpoint); }},
        {service + "ReportResult", [this] { return answer(&Impl::report_result); }},
        {service + "Contribute", [this] { return answer(&Impl::contribute); }},
        {service + "ReportTransportError",
         [this] { return answer(&Impl::report_transport_error); }},
        {service + "Leave", [this] { return answer(&Impl::leave); }},
        {service + "Status", [this] { return answer(&Impl::status); }},
        {service + "Replan", [this] { return replan(); }},
    };
  }

  /// A server keeps it, also one that then cannot listen: so each has its own.
  class Calls final : public grpc::CallbackGenericService {
   public:
    explicit Calls(Impl& impl) : impl_(impl) {}
    grpc::ServerGenericBidiReactor* CreateReactor(
        grpc::GenericCallbackServerContext* context) override {
      return impl_.begin(*context);
    }

   private:
    Impl& impl_;
  };

  CoordinatorOptions options;
  HostPort address;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t open_streams = 0;  // guarded by mutex
  JobControl control;
  const Methods methods = make_methods();
  std::unique_ptr<Calls> calls;
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
