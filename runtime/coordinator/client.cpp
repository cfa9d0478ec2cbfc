#include "runtime/coordinator/client.hpp"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

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

constexpr std::chrono::seconds kReportDeadline{30};
constexpr std::chrono::seconds kLeaveDeadline{2};
// Between heartbeats, however short the steps are.
constexpr std::chrono::milliseconds kShortestPeriod{50};
// The coordinator waits half a second for a suspect's own end.
constexpr std::chrono::milliseconds kBetterReason{1500};

// How often somebody who cannot connect looks why not.
constexpr std::chrono::seconds kLookPeriod{1};

constexpr grpc::StatusCode kGivenUp = grpc::StatusCode::NOT_FOUND;

/// Whether the coordinator ended the stream, and said why.
bool is_orderly(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::ABORTED || status.error_code() == kGivenUp;
}

}  // namespace

struct CoordinatorClient::Impl {
  Impl(const HostPort& coordinator, std::string given_token,
       std::function<void(const std::string&)> given_on_abort,
       const std::optional<TlsCertificates>& tls)
      : where("the coordinator at " + to_string(coordinator)),
        token(std::move(given_token)),
        on_abort(std::move(given_on_abort)),
        channel(make_channel(coordinator, tls)),
        is_encrypted(tls.has_value()),
        stub(proto::Coordinator::NewStub(channel)) {}

  // ---- the reader's thread

  void read(const proto::JoinRequest& request) {
    stream_context.set_wait_for_ready(true);
    stream_context.AddMetadata(kTokenKey, token);
    const auto reader = stub->Join(&stream_context, request);
    proto::Event event;
    while (reader->Read(&event)) {
      if (event.has_welcome()) {
        start(*event.mutable_welcome());
      } else if (event.has_abort()) {
        abort(event.abort().reason(), /*from_coordinator=*/true, event.abort().come_back());
      } else if (event.has_gathered()) {
        keep(*event.mutable_gathered());
      } else if (event.has_finish()) {
        const std::lock_guard lock(mutex);
        finished = true;
        changed.notify_all();
      }
    }
    const grpc::Status status = reader->Finish();
    bool lost = false;
    {
      const std::lock_guard lock(mutex);
      stream_status = status;
      given_up = status.error_code() == kGivenUp;
      lost = welcome.has_value() && !finished && !leaving;
      changed.notify_all();
    }
    if (lost && is_orderly(status)) {
      abort(one_line(status.error_message()), /*from_coordinator=*/true);
    } else if (lost) {
      abort(where + " was lost: connection closed");
    }
  }

  void start(proto::Welcome& message) {
    const std::lock_guard lock(mutex);
    heartbeat_period = Duration(message.heartbeat_period_ps());
    heartbeat_timeout = Duration(message.heartbeat_timeout_ps());
    welcome = take_welcome(message);
    members = welcome->world_size;
    member.set_rank(message.rank());
    member.set_epoch(message.epoch());
    changed.notify_all();
  }

  void keep(proto::Gathered& message) {
    const std::lock_guard lock(mutex);
    if (message.round() == round && static_cast<std::size_t>(message.parts_size()) == members) {
      gathered.emplace(std::make_move_iterator(message.mutable_parts()->begin()),
                       std::make_move_iterator(message.mutable_parts()->end()));
      changed.notify_all();
    }
  }

  /// Only the first reason counts.
  void abort(const std::string& reason, bool from_coordinator = false,
             bool asks_to_come_back = false) {
    {
      const std::lock_guard lock(mutex);
      if (aborted || finished || leaving) {
        return;
      }
      aborted = reason;
      told_to_abort = from_coordinator;
      told_to_come_back = asks_to_come_back;
      changed.notify_all();
    }
    if (on_abort) {
      on_abort(reason);
    }
  }

  /// Until a welcome or the end of the stream is there, or the deadline is over. Throws ConfigError
  /// where certificates do not fit, which no waiting would change.
  void wait_for_welcome(std::unique_lock<std::mutex>& lock, Duration deadline) {
    const auto end = std::chrono::steady_clock::now() + to_chrono(deadline);
    const auto has_come = [&] { return welcome.has_value() || stream_status.has_value(); };
    while (!changed.wait_until(lock, std::min(end, std::chrono::steady_clock::now() + kLookPeriod),
                               has_come)) {
      if (std::chrono::steady_clock::now() >= end) {
        return;
      }
      if (is_encrypted) {
        lock.unlock();
        require_no_refused_certificate();
        lock.lock();
      }
    }
  }

  void require_no_refused_certificate() {
    if (channel->GetState(false) == GRPC_CHANNEL_READY) {
      return;
    }
    // A call that does not wait for a connection fails with the reason why there is none.
    grpc::ClientContext context;
    prepare(context, kLookPeriod);
    proto::JobStatus reply;
    const std::string why =
        one_line(stub->Status(&context, proto::StatusRequest(), &reply).error_message());
    if (why.find("ertificate") != std::string::npos ||
        why.find("CERTIFICATE") != std::string::npos) {
      throw ConfigError(ErrorContext{
          .file = "<environment>",
          .where = kTlsVariable,
          .found = "certificates that do not fit those of " + where + " (" + why + ")",
          .expected = std::string("ones that the job's authority has signed, the leader's for ") +
                      kCoordinatorTlsName});
    }
  }

  // ---- the heartbeats' thread

  void beat() {
    while (true) {
      proto::HeartbeatRequest request;
      grpc::ClientContext context;
      {
        std::unique_lock lock(mutex);
        wait_for_beat(lock);
        if (leaving || aborted) {
          return;
        }
        for (const StepMeasurement& step : measured) {
          put_measured(step, request);
        }
        measured.clear();
        *request.mutable_member() = member;
        request.set_step(progress.step);
        request.set_loss(progress.loss);
        request.set_step_time_ps(progress.step_time.picoseconds());
        heartbeat_context = &context;
      }
      prepare(context, to_chrono(heartbeat_timeout));
      proto::HeartbeatReply reply;
      const grpc::Status status = stub->Heartbeat(&context, request, &reply);
      {
        const std::lock_guard lock(mutex);
        heartbeat_context = nullptr;
      }
      if (!status.ok()) {
        abort(describe(status, heartbeat_timeout));
      } else if (reply.aborted()) {
        abort(reply.reason(), /*from_coordinator=*/true, reply.come_back());
      }
    }
  }

  /// A period, or less when there is something to tell, but never next to nothing.
  void wait_for_beat(std::unique_lock<std::mutex>& lock) {
    const auto whole = to_chrono(heartbeat_period);
    const auto least = std::min(whole, std::chrono::nanoseconds(kShortestPeriod));
    const auto is_over = [&] { return leaving || aborted; };
    if (!changed.wait_for(lock, least, is_over)) {
      changed.wait_for(lock, whole - least, [&] { return is_over() || !measured.empty(); });
    }
  }

  // ---- calls

  template <typename Time>
  void prepare(grpc::ClientContext& context, Time deadline) const {
    context.AddMetadata(kTokenKey, token);
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::duration_cast<std::chrono::microseconds>(deadline));
  }

  std::string describe(const grpc::Status& status, Duration deadline) const {
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return where + " was lost: no answer for " + to_string(deadline);
    }
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return where + " was lost: connection closed";
    }
    return where + " refused: " + one_line(status.error_message());
  }

  proto::Member self() const {
    const std::lock_guard lock(mutex);
    return member;
  }

  void throw_if_aborted() const {
    const std::lock_guard lock(mutex);
    if (aborted) {
      throw PeerLostError(*aborted);
    }
  }

  template <typename Call, typename Request>
  void report(Call call, Request& request) {
    throw_if_aborted();
    *request.mutable_member() = self();
    grpc::ClientContext context;
    prepare(context, kReportDeadline);
    proto::Acknowledged reply;
    const grpc::Status status = (stub.get()->*call)(&context, request, &reply);
    if (!status.ok()) {
      abort(describe(status, Duration::from_seconds(kReportDeadline.count())));
      throw_if_aborted();
    }
  }

  void end_threads() {
    {
      const std::lock_guard lock(mutex);
      leaving = true;
      if (heartbeat_context != nullptr) {
        heartbeat_context->TryCancel();
      }
      changed.notify_all();
    }
    if (reader_thread.joinable()) {
      {
        // The coordinator ends the stream of a member that left.
        std::unique_lock lock(mutex);
        changed.wait_for(lock, said_goodbye ? kLeaveDeadline : std::chrono::seconds(0),
                         [&] { return stream_status.has_value(); });
      }
      stream_context.TryCancel();
      reader_thread.join();
    }
    if (heartbeat_thread.joinable()) {
      heartbeat_thread.join();
    }
  }

  const std::string where;
  const std::string token;
  const std::function<void(const std::string&)> on_abort;
  std::shared_ptr<grpc::Channel> channel;
  const bool is_encrypted;
  std::unique_ptr<proto::Coordinator::Stub> stub;
  grpc::ClientContext stream_context;

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::optional<Welcome> welcome;
  proto::Member member;
  Duration heartbeat_period;
  Duration heartbeat_timeout;
  std::size_t members = 0;  // of the job
  WorkerProgress progress;
  std::deque<StepMeasurement> measured;              // not told yet
  std::uint32_t round = 0;                           // of the exchange that is next or under way
  std::optional<std::vector<std::string>> gathered;  // in that round
  std::optional<std::string> aborted;
  bool told_to_abort = false;
  bool told_to_come_back = false;
  bool given_up = false;  // the job goes on without this worker
  std::optional<grpc::Status> stream_status;
  grpc::ClientContext* heartbeat_context = nullptr;  // of the call in flight
  bool finished = false;
  bool leaving = false;
  bool said_goodbye = false;

  std::thread reader_thread;
  std::thread heartbeat_thread;
};

CoordinatorClient::CoordinatorClient(const HostPort& coordinator, std::string token,
                                     std::function<void(const std::string& reason)> on_abort,
                                     const std::optional<TlsCertificates>& tls)
    : impl_(std::make_unique<Impl>(coordinator, std::move(token), std::move(on_abort), tls)) {}

CoordinatorClient::~CoordinatorClient() { impl_->end_threads(); }

Welcome CoordinatorClient::join(const JoinRequest& request, Duration deadline) {
  Impl& impl = *impl_;
  impl.reader_thread = std::thread([&impl, message = to_message(request)] { impl.read(message); });
  std::unique_lock lock(impl.mutex);
  impl.wait_for_welcome(lock, deadline);
  if (impl.welcome) {
    Welcome welcome = std::move(*impl.welcome);
    impl.welcome.emplace();  // still says that there was one
    if (welcome.rank.index() >= welcome.world_size ||
        welcome.addresses.size() != welcome.world_size ||
        std::min(welcome.heartbeat_period, welcome.heartbeat_timeout) <= Duration() ||
        std::ranges::any_of(welcome.newcomers, [&](Rank newcomer) {
          return newcomer.index() >= welcome.world_size;
        })) {
      throw RuntimeFailure(impl.where + " sent a welcome that contradicts itself");
    }
    impl.heartbeat_thread = std::thread([&impl] { impl.beat(); });
    return welcome;
  }
  if (!impl.stream_status) {
    const bool connected = impl.channel->GetState(false) == GRPC_CHANNEL_READY;
    throw RuntimeFailure(connected ? "the other workers did not come within " + to_string(deadline)
                                   : "no coordinator answered within " + to_string(deadline) +
                                         ": " + impl.where.substr(impl.where.find("at ")) +
                                         (impl.is_encrypted ? " over TLS" : ""));
  }
  const grpc::Status status = *impl.stream_status;
  switch (status.error_code()) {
    case grpc::StatusCode::PERMISSION_DENIED:
      throw ConfigError(
          ErrorContext{.file = "<environment>",
                       .where = kJobTokenVariable,
                       .found = impl.token.empty() ? "no token" : "a wrong token",
                       .expected = "the token of the job that " + impl.where + " runs"});
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::INVALID_ARGUMENT:
      throw ConfigError(impl.where + " refused: " + one_line(status.error_message()));
    case grpc::StatusCode::ABORTED:
    case kGivenUp:
      impl.told_to_abort = true;
      throw RuntimeFailure(one_line(status.error_message()));
    default:
      throw RuntimeFailure(impl.where + " was lost before all workers had come: " +
                           one_line(status.error_message()));
  }
}

void CoordinatorClient::set_progress(const WorkerProgress& progress) {
  const std::lock_guard lock(impl_->mutex);
  impl_->progress = progress;
}

void CoordinatorClient::add_measurement(StepMeasurement measurement) {
  const std::lock_guard lock(impl_->mutex);
  impl_->measured.push_back(std::move(measurement));
  if (impl_->measured.size() > std::size_t{kMostMeasured}) {
    impl_->measured.pop_front();
  }
  impl_->changed.notify_all();
}

void CoordinatorClient::report_checkpoint(std::uint32_t step,
                                          const std::vector<CheckpointFile>& files) {
  proto::CheckpointReport request;
  request.set_step(step);
  put_files(files, request);
  impl_->report(&proto::Coordinator::Stub::ReportCheckpoint, request);
}

void CoordinatorClient::report_result(const std::string& payload,
                                      std::optional<std::uint32_t> steps) {
  proto::ResultReport request;
  request.set_payload(payload);
  if (steps) {
    request.set_steps(*steps);
  }
  impl_->report(&proto::Coordinator::Stub::ReportResult, request);
}

std::vector<std::string> CoordinatorClient::exchange(const std::string& part) {
  proto::Contribution request;
  {
    const std::lock_guard lock(impl_->mutex);
    request.set_round(impl_->round);
  }
  request.set_part(part);
  impl_->report(&proto::Coordinator::Stub::Contribute, request);
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait(lock, [&] { return impl_->gathered || impl_->aborted || impl_->leaving; });
  if (!impl_->gathered) {
    throw PeerLostError(impl_->aborted.value_or("this worker has left the job"));
  }
  ++impl_->round;
  std::vector<std::string> parts = std::move(*impl_->gathered);
  impl_->gathered.reset();
  return parts;
}

bool CoordinatorClient::wait_until_finished(std::optional<Duration> at_most) {
  const auto is_over = [&] { return impl_->finished || impl_->aborted || impl_->leaving; };
  {
    std::unique_lock lock(impl_->mutex);
    if (at_most) {
      impl_->changed.wait_for(lock, to_chrono(*at_most), is_over);
    } else {
      impl_->changed.wait(lock, is_over);
    }
    if (impl_->finished) {
      return true;
    }
    if (impl_->leaving && !impl_->aborted) {
      throw PeerLostError("this worker has left the job");
    }
  }
  impl_->throw_if_aborted();
  return false;
}

bool CoordinatorClient::say_transport_error(std::optional<Rank> peer, const std::string& reason,
                                            std::optional<Duration> silence) {
  proto::TransportErrorReport request;
  if (peer) {
    request.set_peer(peer->value());
  }
  request.set_reason(reason);
  if (silence) {
    request.set_silence_ps(silence->picoseconds());
  }
  try {
    impl_->report(&proto::Coordinator::Stub::ReportTransportError, request);
  } catch (const PeerLostError&) {
    return false;
  }
  return true;
}

std::optional<std::string> CoordinatorClient::report_transport_error(
    std::optional<Rank> peer, const std::string& reason, std::optional<Duration> silence) {
  if (!say_transport_error(peer, reason, silence)) {
    return abort_reason();
  }
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, kBetterReason, [&] { return impl_->aborted.has_value(); });
  return impl_->aborted;
}

std::optional<std::string> CoordinatorClient::abort_reason() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->aborted;
}

bool CoordinatorClient::was_told_to_abort() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->told_to_abort;
}

bool CoordinatorClient::is_to_come_back() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->told_to_come_back;
}

bool CoordinatorClient::is_coordinator_lost() const {
  const std::lock_guard lock(impl_->mutex);
  return !impl_->told_to_abort && (impl_->aborted || (impl_->stream_status && !impl_->finished));
}

bool CoordinatorClient::coordinator_knows() const {
  const std::lock_guard lock(impl_->mutex);
  return (impl_->told_to_abort && !impl_->given_up) || impl_->said_goodbye;
}

void CoordinatorClient::leave(bool ok, const AbortReason& reason) {
  proto::LeaveRequest request;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->leaving || !impl_->welcome || impl_->stream_status) {
      return;
    }
    impl_->leaving = true;
    *request.mutable_member() = impl_->member;
  }
  request.set_ok(ok);
  request.set_reason(reason.line);
  request.set_bad_input(reason.bad_input);
  grpc::ClientContext context;
  impl_->prepare(context, kLeaveDeadline);
  proto::Acknowledged reply;
  const bool said_goodbye = impl_->stub->Leave(&context, request, &reply).ok();
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->said_goodbye = said_goodbye;
  }
  impl_->end_threads();
}

}  // namespace rackrail::runtime
