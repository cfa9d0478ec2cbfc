#include "runtime/coordinator/server.hpp"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "runtime/coordinator/coordinator.grpc.pb.h"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/task_thread.hpp"

namespace rackrail::runtime {
namespace {

namespace proto = rackrail::coordinator::v1;

TimePoint now() { return std::chrono::steady_clock::now(); }

/// Empty when the request may be looked at; otherwise what is wrong with its sizes.
std::string malformed(const proto::JoinRequest& request) {
  constexpr std::size_t kLargestAddress = 64 << 10;
  if (request.address().size() > kLargestAddress) {
    return "a transport address of " + std::to_string(request.address().size()) +
           " bytes, expected at most " + std::to_string(kLargestAddress);
  }
  if (request.host().size() > 255 || request.version().size() > 255 ||
      request.plan_digest().size() > 255) {
    return "a host, version or digest of more than 255 characters";
  }
  return "";
}

JoinRequest from_proto(const proto::JoinRequest& message) {
  JoinRequest request;
  if (message.has_rank()) {
    request.rank = Rank(static_cast<std::size_t>(message.rank()));
  }
  request.world_size = message.world_size();
  const auto* address = reinterpret_cast<const std::byte*>(message.address().data());
  request.address.assign(address, address + message.address().size());
  request.plan_digest = one_line(message.plan_digest());
  request.host = one_line(message.host());
  request.pid = message.pid();
  request.version = one_line(message.version());
  return request;
}

std::vector<CheckpointFile> from_proto(const proto::CheckpointReport& message) {
  std::vector<CheckpointFile> files;
  files.reserve(static_cast<std::size_t>(message.files_size()));
  for (const proto::CheckpointFile& file : message.files()) {
    files.push_back({file.name(), file.sha256(), Bytes(file.bytes())});
  }
  return files;
}

/// The stream of one member. Everything but the reactions is called on the service thread only.
class JoinStream final : public grpc::ServerWriteReactor<proto::Event> {
 public:
  /// What the reactions of gRPC's threads turn into, on the service thread.
  struct Listener {
    std::function<void(TaskThread::Task)> post;
    std::function<void(JoinStream&)> on_broken;
    std::function<void(JoinStream&)> on_done;
  };

  explicit JoinStream(const Listener& listener) : listener_(listener) {}

  void send(proto::Event event) {
    if (!ending_) {
      queue_.push_back(std::move(event));
      go_on();
    }
  }
  /// After what is queued; later calls do nothing.
  void end(const grpc::Status& status) {
    if (!ending_) {
      ending_ = true;
      status_ = status;
      go_on();
    }
  }

  void OnWriteDone(bool ok) override {
    listener_.post([this, ok] {
      writing_ = false;
      queue_.pop_front();
      if (!ok) {
        queue_.clear();
        listener_.on_broken(*this);
      }
      go_on();
    });
  }
  void OnCancel() override {
    listener_.post([this] { listener_.on_broken(*this); });
  }
  void OnDone() override {
    listener_.post([this] { listener_.on_done(*this); });
  }

 private:
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

  const Listener& listener_;
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
  explicit Impl(CoordinatorOptions given)
      : options(std::move(given)), membership(options.membership, now()) {
    if (options.plan.size() > kLargestWelcome / 2U) {
      throw ConfigError(ErrorContext{.file = "",
                                     .where = "plan",
                                     .found = std::to_string(options.plan.size()) + " bytes",
                                     .expected = "at most " + std::to_string(kLargestWelcome / 2)});
    }
    if (options.token.empty() && !is_loopback(options.listen.host)) {
      throw ConfigError(
          ErrorContext{.file = "<environment>",
                       .where = kJobTokenVariable,
                       .found = "nothing",
                       .expected = "a secret that all workers have, because the coordinator "
                                   "listens at " +
                                   to_string(options.listen)});
    }
    prepare_grpc();
    listener.post = [this](TaskThread::Task task) { service->post(std::move(task)); };
    listener.on_broken = [this](JoinStream& stream) {
      if (const auto it = member_of_stream.find(&stream); it != member_of_stream.end()) {
        membership.stream_closed(it->second, now());
      }
      stream.end(grpc::Status(grpc::StatusCode::CANCELLED, "connection closed"));
    };
    listener.on_done = [this](JoinStream& stream) {
      forget(stream);
      delete &stream;
      const std::lock_guard lock(mutex);
      --open_streams;
      changed.notify_all();
    };
    callbacks = std::make_unique<TaskThread>([] { return TimePoint::max(); });
    service = std::make_unique<TaskThread>([this] { return turn(); });
    listen();
  }

  ~Impl() override {
    if (server != nullptr) {
      service->post([this] {
        membership.stop({"the coordinator was shut down", false}, now());
        for (const auto& [stream, member] : std::map(member_of_stream)) {
          stream->end(grpc::Status(grpc::StatusCode::ABORTED, membership.abort_reason().line));
        }
      });
      server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
      server.reset();
    }
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return open_streams == 0; });
    }
    service->finish();  // does what is still posted, which may post to the callbacks
    callbacks->finish();
  }

  void listen() {
    grpc::ServerBuilder builder;
    int port = 0;
    // Otherwise two coordinators could share a port, and each would get some of the workers.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kLargestReport);
    builder.AddListeningPort(to_string(options.listen), grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server = builder.BuildAndStart();
    if (server == nullptr || port <= 0) {
      server.reset();
      throw RuntimeFailure("the coordinator cannot listen at " + to_string(options.listen) +
                           ": the port is taken or the address is not of this host");
    }
    address = {options.listen.host, static_cast<std::uint16_t>(port)};
  }

  // ---- calls, on gRPC's threads

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
    auto* stream = new JoinStream(listener);  // deleted by on_done, after gRPC's last word
    service->post([this, stream, message = from_proto(*request)]() mutable {
      join(*stream, std::move(message));
    });
    return stream;
  }

  /// Runs `act` on the service thread, then answers.
  template <typename Act>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Act act) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (!may_talk(*context)) {
      reactor->Finish(not_welcome());
      return reactor;
    }
    // Request and response live until Finish.
    service->post([reactor, act = std::move(act)] {
      act();
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  /// Calls `act(rank)` if the speaker is a member of this epoch.
  template <typename Act>
  void as_member(const proto::Member& member, Act act) {
    if (membership.epoch() != 0 && member.epoch() == membership.epoch()) {
      act(Rank(static_cast<std::size_t>(member.rank())));
    }
  }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const proto::HeartbeatRequest* request,
                                      proto::HeartbeatReply* reply) override {
    return answer(context, [this, request, reply] {
      as_member(request->member(), [&](Rank rank) {
        membership.heartbeat(
            rank, {request->step(), request->loss(), Duration(request->step_time_ps())}, now());
      });
      reply->set_aborted(membership.state() == MembershipState::kAborted);
      reply->set_reason(membership.abort_reason().line);
    });
  }

  grpc::ServerUnaryReactor* ReportCheckpoint(grpc::CallbackServerContext* context,
                                             const proto::CheckpointReport* request,
                                             proto::Acknowledged*) override {
    return answer(context, [this, request] {
      as_member(request->member(), [&](Rank rank) {
        membership.report_checkpoint(rank, request->step(), from_proto(*request));
      });
    });
  }

  grpc::ServerUnaryReactor* ReportResult(grpc::CallbackServerContext* context,
                                         const proto::ResultReport* request,
                                         proto::Acknowledged*) override {
    return answer(context, [this, request] {
      as_member(request->member(),
                [&](Rank rank) { membership.report_result(rank, request->payload(), now()); });
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
        membership.report_transport_error(rank, peer, one_line(request->reason()), now());
      });
    });
  }

  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const proto::LeaveRequest* request,
                                  proto::Acknowledged*) override {
    return answer(context, [this, request] {
      as_member(request->member(), [&](Rank rank) {
        membership.leave(rank, request->ok(), {one_line(request->reason()), request->bad_input()},
                         now());
        const std::optional<MemberId> member = membership.member_of(rank);
        for (const auto& [stream, id] : std::map(member_of_stream)) {
          if (id == member) {
            stream->end(grpc::Status::OK);
          }
        }
      });
    });
  }

  // ---- the service thread

  void join(JoinStream& stream, JoinRequest request) {
    const auto joined = membership.join(std::move(request), now());
    if (const auto* refusal = std::get_if<Refusal>(&joined)) {
      stream.end(grpc::Status(
          refusal->too_late ? grpc::StatusCode::ABORTED : grpc::StatusCode::FAILED_PRECONDITION,
          refusal->reason));
      return;
    }
    member_of_stream.emplace(&stream, std::get<MemberId>(joined));
  }

  void forget(JoinStream& stream) {
    const auto it = member_of_stream.find(&stream);
    if (it != member_of_stream.end()) {
      membership.stream_closed(it->second, now());
      member_of_stream.erase(it);
    }
  }

  TimePoint turn() {
    const TimePoint time = now();
    membership.tick(time);
    for (MembershipEvent& event : membership.take_events()) {
      std::visit([this](auto& each) { tell(each); }, event);
    }
    publish_progress(time);
    if (!over && membership.is_over(time)) {
      over = true;
      callbacks->post([this, outcome = outcome_now()]() mutable { publish(std::move(outcome)); });
    }
    return membership.next_deadline(time);
  }

  void tell(const AllJoined&) {
    started = true;
    proto::Event event;
    proto::Welcome& welcome = *event.mutable_welcome();
    const auto addresses = membership.addresses();
    for (const std::vector<std::byte>& each : addresses) {
      welcome.add_addresses(each.data(), each.size());
    }
    welcome.set_world_size(static_cast<std::uint32_t>(addresses.size()));
    welcome.set_epoch(membership.epoch());
    welcome.set_plan(options.plan);
    welcome.set_job_options(options.job_options);
    welcome.set_heartbeat_period_ps(options.heartbeat_period.picoseconds());
    welcome.set_heartbeat_timeout_ps(options.membership.heartbeat_timeout.picoseconds());
    for (const auto& [stream, member] : member_of_stream) {
      welcome.set_rank(membership.rank_of(member).value().value());
      stream->send(event);
    }
  }

  void tell(const Aborted& aborted) {
    proto::Event event;
    event.mutable_abort()->set_reason(aborted.reason.line);
    for (const auto& [stream, member] : member_of_stream) {
      if (membership.epoch() == 0) {
        stream->end(grpc::Status(grpc::StatusCode::ABORTED, aborted.reason.line));
      } else {
        stream->send(event);
      }
    }
  }

  void tell(CheckpointComplete& checkpoint) {
    if (!options.on_checkpoint) {
      return;
    }
    callbacks->post([this, complete = std::move(checkpoint)] {
      try {
        options.on_checkpoint(complete.step, complete.files);
      } catch (const Error& error) {
        callback_failure = AbortReason{one_line(error.what()), error.is_bad_input()};
      } catch (const std::exception& error) {
        callback_failure = AbortReason{one_line(error.what()), false};
      }
      if (callback_failure) {
        service->post([this, reason = *callback_failure] { membership.stop(reason, now()); });
      }
    });
  }

  void tell(const AllFinished&) {
    proto::Event event;
    event.mutable_finish();
    for (const auto& [stream, member] : member_of_stream) {
      stream->send(event);
    }
  }

  void publish_progress(TimePoint time) {
    constexpr std::chrono::milliseconds kPeriod{100};
    if (!options.on_progress || progress_waits || time < last_progress + kPeriod) {
      return;
    }
    last_progress = time;
    progress_waits = true;
    callbacks->post([this, progress = membership.progress()] {
      options.on_progress(progress);
      progress_waits = false;
    });
  }

  CoordinatorOutcome outcome_now() const {
    CoordinatorOutcome result;
    result.ok = membership.state() == MembershipState::kFinished;
    result.reason = membership.abort_reason();
    result.results = membership.results();
    result.progress = membership.progress();
    result.epochs = membership.epoch();
    return result;
  }

  // ---- the callbacks' thread, after everything else it had to do

  void publish(CoordinatorOutcome result) {
    if (options.on_progress) {
      options.on_progress(result.progress);
    }
    if (result.ok && callback_failure) {  // the last checkpoint, after all workers had finished
      result.ok = false;
      result.reason = *callback_failure;
    }
    const std::lock_guard lock(mutex);
    outcome = std::move(result);
    changed.notify_all();
  }

  CoordinatorOptions options;
  HostPort address;
  JoinStream::Listener listener;

  // Touched on the service thread only.
  Membership membership;
  std::map<JoinStream*, MemberId> member_of_stream;
  TimePoint last_progress;
  bool over = false;
  // Touched on the callbacks' thread only.
  std::optional<AbortReason> callback_failure;

  std::atomic<bool> started = false;
  std::atomic<bool> progress_waits = false;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::size_t open_streams = 0;
  std::optional<CoordinatorOutcome> outcome;

  std::unique_ptr<TaskThread> callbacks;
  std::unique_ptr<TaskThread> service;
  std::unique_ptr<grpc::Server> server;
};

CoordinatorServer::CoordinatorServer(CoordinatorOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}

CoordinatorServer::~CoordinatorServer() = default;

const HostPort& CoordinatorServer::address() const { return impl_->address; }

void CoordinatorServer::stop(const std::string& reason) {
  impl_->service->post([impl = impl_.get(), reason] {
    impl->membership.stop({reason, false}, now());
  });
}

bool CoordinatorServer::has_started() const { return impl_->started; }

std::optional<CoordinatorOutcome> CoordinatorServer::wait_for(Duration at_most) {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, std::chrono::nanoseconds(at_most.picoseconds() / 1000),
                          [&] { return impl_->outcome.has_value(); });
  return impl_->outcome;
}

}  // namespace rackrail::runtime
