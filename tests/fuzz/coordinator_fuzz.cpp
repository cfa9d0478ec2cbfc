// Messages to a coordinator, and from it. The input is acts one after another: the number of one,
// two bytes of length, and so many bytes of the message, as in what the service gets from gRPC.
#include <algorithm>
#include <deque>
#include <functional>
#include <future>

#include "runtime/coordinator/coordinator.pb.h"
#include "runtime/coordinator/job_control.hpp"
#include "runtime/coordinator/member_calls.hpp"
#include "runtime/coordinator/messages.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace rackrail::fuzz {
namespace {

namespace proto = coordinator::v1;
using runtime::JobControl;

constexpr std::size_t kWorkers = 2;
constexpr std::size_t kMostActs = 64;

class Stream final : public runtime::MemberStream {
 public:
  void welcome(Rank rank, const runtime::EpochRecord& epoch,
               const runtime::PeerAddresses& peers) override {
    require(rank.index() < peers.by_rank.size() && peers.by_rank.size() == epoch.seats.size(),
            "a rank that the epoch does not have");
  }
  void abort(const std::string& reason, bool /*come_back*/) override { require_line(reason); }
  void finish() override {}
  void gathered(std::uint32_t /*round*/, const std::vector<std::string>& parts) override {
    require(!parts.empty() && parts.size() <= kWorkers, "parts of other ranks than there are");
  }
  void end(End /*how*/, const std::string& reason) override { require_line(reason); }

 private:
  static void require_line(const std::string& text) {
    require(text.find('\n') == text.npos, "a reason that is not one line: " + text);
  }
};

runtime::CoordinatorOptions job_options() {
  runtime::CoordinatorOptions options;
  options.membership.world_size = kWorkers;
  options.membership.version = "v";
  options.membership.plan_digest = "d";
  options.plan = "plan";
  options.job_options = "{}";
  options.on_loss = [](const runtime::Loss&) { return runtime::EpochPlan{"other", "e"}; };
  options.on_checkpoint = [](std::uint32_t,
                             const std::vector<std::vector<runtime::CheckpointFile>>&) {};
  options.on_measured = [](const runtime::StepMeasurement&) -> std::optional<runtime::PlanChange> {
    return {};
  };
  return options;
}

/// A job, and what reaches it.
class Besieged {
 public:
  ~Besieged() {
    do_now([this] {
      control_.end_all("the input is over");
      for (Stream& stream : streams_) {
        control_.forget(stream);
      }
    });
    control_.finish();
  }

  void join(std::string_view bytes) {
    proto::JoinRequest message;
    if (parse(bytes, message) && runtime::malformed(message).empty()) {
      Stream& stream = streams_.emplace_back();
      do_now([&] { control_.join(stream, runtime::from_message(message)); });
    }
  }

  void break_stream(std::size_t number) {
    if (number < streams_.size()) {
      do_now([&] { control_.broken(streams_[number]); });
    }
  }

  template <typename Request, typename Reply>
  void call(void (*act)(JobControl&, const Request&, Reply&), std::string_view bytes) {
    Request message;
    if (!parse(bytes, message)) {
      return;
    }
    if constexpr (std::is_same_v<Request, proto::CheckpointReport>) {
      if (!runtime::malformed(message).empty()) {
        return;
      }
    }
    do_now([&] {
      Reply reply;
      act(control_, message, reply);
      require(reply.SerializeAsString().size() < 100'000, "an answer beyond all measure");
    });
  }

  void replan() {
    do_now([&] {
      control_.replan([](const runtime::ReplanAnswer& answer) {
        proto::ReplanReply reply;
        runtime::put_answer(answer, reply);
      });
    });
  }

  template <typename Message>
  static bool parse(std::string_view bytes, Message& message) {
    return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  }

 private:
  void do_now(const std::function<void()>& task) {
    std::promise<void> done;
    control_.post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  const runtime::CoordinatorOptions options_ = job_options();
  std::deque<Stream> streams_;
  JobControl control_{options_};
};

/// What a worker or a visitor is told: what is read of it can be written, and is then the same.
void hear(std::string_view bytes) {
  proto::JobStatus status;
  if (Besieged::parse(bytes, status)) {
    proto::JobStatus first;
    proto::JobStatus second;
    runtime::put_status(runtime::from_message(status), first);
    runtime::put_status(runtime::from_message(first), second);
    require(first.SerializeAsString() == second.SerializeAsString(), "another status when read");
  }
  proto::ReplanReply reply;
  if (Besieged::parse(bytes, reply)) {
    proto::ReplanReply written;
    runtime::put_answer(runtime::from_message(reply), written);
  }
  proto::Event event;
  if (Besieged::parse(bytes, event) && event.has_welcome()) {
    runtime::take_welcome(*event.mutable_welcome());
  }
}

// The numbers of acts.
enum Act : std::uint8_t {
  kJoin,
  kHeartbeat,
  kReportCheckpoint,
  kReportResult,
  kContribute,
  kReportTransportError,
  kLeave,
  kStatus,
  kReplan,
  kBreak,
  kHear,
  kActs
};

void act(Besieged& job, std::uint8_t number, std::string_view bytes) {
  switch (number % kActs) {
    case kJoin:
      return job.join(bytes);
    case kHeartbeat:
      return job.call(&runtime::heartbeat, bytes);
    case kReportCheckpoint:
      return job.call(&runtime::report_checkpoint, bytes);
    case kReportResult:
      return job.call(&runtime::report_result, bytes);
    case kContribute:
      return job.call(&runtime::contribute, bytes);
    case kReportTransportError:
      return job.call(&runtime::report_transport_error, bytes);
    case kLeave:
      return job.call(&runtime::leave, bytes);
    case kStatus:
      return job.call(&runtime::status, bytes);
    case kReplan:
      return job.replan();
    case kBreak:
      return job.break_stream(bytes.size());
    default:
      return hear(bytes);
  }
}

std::string act_of_bytes(std::uint8_t number, const std::string& bytes = {}) {
  return std::string{static_cast<char>(number), static_cast<char>(bytes.size() & 0xffU),
                     static_cast<char>(bytes.size() >> 8U)} +
         bytes;
}

template <typename Message>
std::string act_of(std::uint8_t number, const Message& message) {
  return act_of_bytes(number, message.SerializeAsString());
}

std::string joins() {
  std::string acts;
  for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
    proto::JoinRequest join;
    join.set_rank(rank);
    join.set_address("address");
    join.set_host("h");
    join.set_pid(7 + rank);
    join.set_version("v");
    acts += act_of(kJoin, join);
  }
  return acts;
}

/// A message in which `rank` says something in the first epoch.
template <typename Message>
Message said_by(std::uint32_t rank) {
  Message message;
  message.mutable_member()->set_rank(rank);
  message.mutable_member()->set_epoch(1);
  return message;
}

std::string a_whole_job() {
  std::string acts = joins();
  for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
    auto heartbeat = said_by<proto::HeartbeatRequest>(rank);
    heartbeat.set_step(1);
    proto::MeasuredStep& step = *heartbeat.add_measured();
    step.set_step(1);
    step.set_samples(32);
    step.set_step_time_ps(1000);
    step.mutable_norms()->set_mean_squared(1);
    proto::ReceivedTraffic& received = *step.add_received();
    received.set_source(1 - rank);
    received.set_bytes(100);
    received.set_busy_ps(10);
    auto part = said_by<proto::Contribution>(rank);
    part.set_part("here");
    auto checkpoint = said_by<proto::CheckpointReport>(rank);
    checkpoint.set_step(1);
    proto::CheckpointFile& file = *checkpoint.add_files();
    file.set_name("part");
    file.set_sha256("0");
    file.set_bytes(1);
    auto result = said_by<proto::ResultReport>(rank);
    result.set_payload("{}");
    acts += act_of(kHeartbeat, heartbeat) + act_of(kContribute, part) +
            act_of(kReportCheckpoint, checkpoint) + act_of(kReportResult, result);
  }
  acts += act_of_bytes(kStatus);
  for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
    auto leave = said_by<proto::LeaveRequest>(rank);
    leave.set_ok(true);
    acts += act_of(kLeave, leave);
  }
  return acts;
}

std::string a_loss() {
  auto error = said_by<proto::TransportErrorReport>(0);
  error.set_peer(1);
  error.set_silence_ps(5);
  error.set_reason("gone");
  proto::JoinRequest back;
  back.set_version("v");
  back.set_address("address");
  back.mutable_returning()->set_epoch(1);
  back.mutable_returning()->set_step(1);
  back.mutable_returning()->set_has_parameters(true);
  return joins() + act_of(kReportTransportError, error) + act_of_bytes(kBreak, "1") +
         act_of_bytes(kReplan) + act_of(kJoin, back);
}

std::string answers() {
  proto::JobStatus status;
  status.set_state(proto::JobStatus::RUNNING);
  status.set_world_size(2);
  status.add_members()->set_rank(1);
  proto::PairRate& rate = *status.add_rates();
  rate.set_source(1);
  rate.set_bytes_per_second(5);
  proto::ReplanReply replan;
  replan.set_kept_step_time_ps(1);
  proto::Event event;
  event.mutable_welcome()->add_addresses("address");
  event.mutable_welcome()->add_newcomers(1);
  return act_of(kHear, status) + act_of(kHear, replan) + act_of(kHear, event);
}

}  // namespace

std::vector<std::string> seeds() { return {a_whole_job(), a_loss(), answers()}; }

}  // namespace rackrail::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  constexpr std::size_t kHead = 3;
  std::string_view rest = fuzz::text_of(data, size);
  fuzz::Besieged job;
  for (std::size_t acts = 0; acts < fuzz::kMostActs && rest.size() >= kHead; ++acts) {
    const auto number = static_cast<std::uint8_t>(rest[0]);
    const std::size_t length =
        static_cast<std::uint8_t>(rest[1]) | std::size_t{static_cast<std::uint8_t>(rest[2])} << 8U;
    rest.remove_prefix(kHead);
    fuzz::act(job, number, rest.substr(0, length));
    rest.remove_prefix(std::min(length, rest.size()));
  }
  return 0;
}
