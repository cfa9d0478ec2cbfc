#include "runtime/coordinator/service.hpp"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/coordinator/coordinator.grpc.pb.h"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/job_control.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/member_calls.hpp"
#include "runtime/coordinator/messages.hpp"

namespace rackrail::runtime {
namespace {

namespace proto = rackrail::coordinator::v1;

/// False where the bytes are not those of such a message. None are left in the buffer.
template <typename Message>
bool take_message(grpc::ByteBuffer& buffer, Message& message) {
  return grpc::SerializationTraits<Message>::Deserialize(&buffer, &message).ok();
}

template <typename Message>
grpc::ByteBuffer serialized(const Message& message) {
  grpc::ByteBuffer buffer;
  bool is_own = false;
  // Fails for more than 2 GiB alone, which nobody could receive.
  grpc::SerializationTraits<Message>::Serialize(message, &buffer, &is_own);
  return buffer;
}

/// One that ends before it began. Deletes itself, as all calls do.
class RefusedCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

/// A message each way.
template <typename Request, typename Reply>
class UnaryCall final : public grpc::ServerGenericBidiReactor {
 public:
  /// Called on a thread of gRPC once the request is there; calls finish(), then or later.
  using Begin = std::function<void(UnaryCall&)>;

  explicit UnaryCall(Begin begin) : begin_(std::move(begin)) { StartRead(&buffer_); }

  // Until finish():
  const Request& request() const { return request_; }
  Reply& reply() { return reply_; }

  /// Once, from any thread. With the reply, if the status is good.
  void finish(const grpc::Status& status) {
    if (!status.ok()) {
      Finish(status);
      return;
    }
    buffer_ = serialized(reply_);
    StartWriteAndFinish(&buffer_, grpc::WriteOptions(), status);
  }

  void OnReadDone(bool ok) override {
    if (!ok || !take_message(buffer_, request_)) {
      finish({grpc::StatusCode::INVALID_ARGUMENT, "no such message"});
      return;
    }
    begin_(*this);
  }
  void OnDone() override { delete this; }

 private:
  const Begin begin_;
  grpc::ByteBuffer buffer_;
  Request request_;
  Reply reply_;
};

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

  void welcome(Rank rank, const EpochRecord& epoch, const PeerAddresses& peers) override {
    proto::Event event;
    proto::Welcome& message = *event.mutable_welcome();
    message.set_rank(rank.value());
    message.set_world_size(static_cast<std::uint32_t>(peers.by_rank.size()));
    message.set_epoch(epoch.epoch);
    for (const std::vector<std::byte>& address : peers.by_rank) {
      message.add_addresses(address.data(), address.size());
    }
    message.set_transport_key(peers.key);
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

struct CoordinatorService::Impl {
  Impl(JobControl& control, const CoordinatorOptions& options)
      : control_(control), options_(options) {}

  bool may_talk(const grpc::CallbackServerContext& context) const {
    if (options_.token.empty()) {
      return true;
    }
    const auto& metadata = context.client_metadata();
    const auto it = metadata.find(kTokenKey);
    return it != metadata.end() &&
           same_token(std::string_view(it->second.data(), it->second.size()), options_.token);
  }

  static grpc::Status not_welcome() {
    return {grpc::StatusCode::PERMISSION_DENIED, "the job's token is missing or wrong"};
  }

  /// Where all calls begin, with nothing of their messages.
  grpc::ServerGenericBidiReactor* begin(const grpc::GenericCallbackServerContext& context) {
    if (!may_talk(context)) {
      return new RefusedCall(not_welcome());
    }
    const auto method = methods_.find(context.method());
    if (method == methods_.end()) {
      return new RefusedCall({grpc::StatusCode::UNIMPLEMENTED, "no such call"});
    }
    return method->second();
  }

  grpc::ServerGenericBidiReactor* join() {
    {
      const std::lock_guard lock(mutex_);
      ++open_streams_;
    }
    return new JoinStream(control_, options_, [this](JoinStream* done) { bury(done); });
  }

  void bury(JoinStream* stream) {
    control_.forget(*stream);
    delete stream;
    const std::lock_guard lock(mutex_);
    --open_streams_;
    changed_.notify_all();
  }

  /// Runs `act` on the service thread, then answers; refuses where the request has a problem.
  template <typename Request, typename Reply>
  grpc::ServerGenericBidiReactor* answer(void (*act)(JobControl&, const Request&, Reply&)) {
    using Call = UnaryCall<Request, Reply>;
    return new Call([this, act](Call& call) {
      if (const std::string problem = problem_of(call.request()); !problem.empty()) {
        call.finish({grpc::StatusCode::INVALID_ARGUMENT, problem});
        return;
      }
      // The call lives until it is finished.
      control_.post([this, act, &call] {
        act(control_, call.request(), call.reply());
        call.finish(grpc::Status::OK);
      });
    });
  }
  template <typename Request>
  static std::string problem_of(const Request& /*request*/) {
    return {};
  }
  static std::string problem_of(const proto::CheckpointReport& report) { return malformed(report); }

  /// Answered once there is a plan, or none.
  grpc::ServerGenericBidiReactor* replan() {
    using Call = UnaryCall<proto::ReplanRequest, proto::ReplanReply>;
    return new Call([this](Call& call) {
      control_.post([this, &call] {
        control_.replan([&call](const ReplanAnswer& answer) {
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
        {service + "Heartbeat", [this] { return answer(&runtime::heartbeat); }},
        {service + "ReportCheckpoint", [this] { return answer(&runtime::report_checkpoint); }},
        {service + "ReportResult", [this] { return answer(&runtime::report_result); }},
        {service + "Contribute", [this] { return answer(&runtime::contribute); }},
        {service + "ReportTransportError",
         [this] { return answer(&runtime::report_transport_error); }},
        {service + "Leave", [this] { return answer(&runtime::leave); }},
        {service + "Status", [this] { return answer(&runtime::status); }},
        {service + "Replan", [this] { return replan(); }},
    };
  }

  JobControl& control_;
  const CoordinatorOptions& options_;
  const Methods methods_ = make_methods();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t open_streams_ = 0;  // guarded by mutex_
};

namespace {

class Calls final : public grpc::CallbackGenericService {
 public:
  using Begin =
      std::function<grpc::ServerGenericBidiReactor*(const grpc::GenericCallbackServerContext&)>;

  explicit Calls(Begin begin) : begin_(std::move(begin)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return begin_(*context);
  }

 private:
  const Begin begin_;
};

}  // namespace

CoordinatorService::CoordinatorService(JobControl& control, const CoordinatorOptions& options)
    : impl_(std::make_unique<Impl>(control, options)) {}

CoordinatorService::~CoordinatorService() = default;

std::unique_ptr<grpc::CallbackGenericService> CoordinatorService::calls() {
  return std::make_unique<Calls>(
      [&impl = *impl_](const grpc::GenericCallbackServerContext& context) {
        return impl.begin(context);
      });
}

void CoordinatorService::wait_for_streams() {
  std::unique_lock lock(impl_->mutex_);
  impl_->changed_.wait(lock, [this] { return impl_->open_streams_ == 0; });
}

}  // namespace rackrail::runtime
