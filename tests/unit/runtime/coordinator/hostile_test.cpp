// What reaches a coordinator from somebody who does not keep to the protocol, whether he has the
// job's token or not: nothing of it may end the job, count for it or take memory without bounds.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/coordinator/coordinator.grpc.pb.h"
#include "runtime/coordinator/grpc_setup.hpp"
#include "runtime/coordinator/messages.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"

namespace rackrail::runtime::hostile_test {
namespace {

namespace proto = rackrail::coordinator::v1;
using test::TestClient;

constexpr const char* kHostileToken = "secret-of-this-test";
constexpr std::uint32_t kHuge = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

const std::vector<std::string> kMethods = {"Join",         "Heartbeat",  "ReportCheckpoint",
                                           "ReportResult", "Contribute", "ReportTransportError",
                                           "Leave",        "Status",     "Replan"};

/// A job of two whose members keep to the protocol, and a channel to it for who does not.
class Besieged {
 public:
  Besieged() {
    CoordinatorOptions options;
    options.token = kHostileToken;
    options.membership.world_size = 2;
    options.membership.version = "test";
    options.membership.plan_digest = "digest";
    options.membership.heartbeat_timeout = 20_s;
    options.plan = "plan";
    options.job_options = "{}";
    options.on_checkpoint = [this](std::uint32_t step,
                                   const std::vector<std::vector<CheckpointFile>>& files) {
      const std::lock_guard lock(mutex_);
      checkpoints_.emplace_back(step, files);
    };
    options.on_measured = [this](const StepMeasurement& step) -> std::optional<PlanChange> {
      const std::lock_guard lock(mutex_);
      measured_.push_back(step);
      return std::nullopt;
    };
    server_ = std::make_unique<CoordinatorServer>(options);
    std::vector<std::future<void>> joining;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      members.push_back(std::make_unique<TestClient>(server_->address(), kHostileToken));
      joining.push_back(std::async(std::launch::async,
                                   [&client = *members.back(), rank] { client.join(Rank(rank)); }));
    }
    for (std::future<void>& one : joining) {
      one.get();
    }
    prepare_grpc();
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(to_string(server_->address()),
                                         grpc::InsecureChannelCredentials(), arguments);
    stub = proto::Coordinator::NewStub(channel_);
  }

  /// These bytes as a request, over this token.
  grpc::Status send(const std::string& method, const std::string& bytes,
                    const std::string& token = kHostileToken) {
    grpc::ClientContext context;
    prepare(context, token);
    grpc::GenericStub generic(channel_);
    grpc::CompletionQueue queue;
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    const auto call = generic.PrepareUnaryCall(&context, path(method), request, &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, &call_tag_);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

  /// Begins a call, and sends no message.
  grpc::Status begin(const std::string& method, const std::string& token,
                     std::chrono::milliseconds patience) {
    grpc::ClientContext context;
    prepare(context, token);
    context.set_deadline(std::chrono::system_clock::now() + patience);
    grpc::GenericStub generic(channel_);
    grpc::CompletionQueue queue;
    const auto call = generic.PrepareCall(&context, path(method), &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(&call_tag_);
    queue.Next(&tag, &ok);
    grpc::Status status;
    call->Finish(&status, &call_tag_);
    queue.Next(&tag, &ok);
    return status;
  }

  template <typename Call, typename Request>
  grpc::Status call(Call method, const Request& request) {
    grpc::ClientContext context;
    prepare(context, kHostileToken);
    proto::Acknowledged reply;
    return (stub.get()->*method)(&context, request, &reply);
  }
  proto::HeartbeatReply heartbeat(const proto::HeartbeatRequest& request) {
    grpc::ClientContext context;
    prepare(context, kHostileToken);
    proto::HeartbeatReply reply;
    CHECK(stub->Heartbeat(&context, request, &reply).ok());
    return reply;
  }

  JobStatus status() {
    grpc::ClientContext context;
    prepare(context, kHostileToken);
    proto::JobStatus reply;
    CHECK(stub->Status(&context, {}, &reply).ok());
    return from_message(reply);
  }
  /// With these bytes in fields that there are not.
  proto::ReplanReply replan(const std::string& unknown) {
    proto::ReplanRequest request;
    request.GetReflection()->MutableUnknownFields(&request)->AddLengthDelimited(9, unknown);
    grpc::ClientContext context;
    prepare(context, kHostileToken);
    proto::ReplanReply reply;
    CHECK(stub->Replan(&context, request, &reply).ok());
    return reply;
  }

  /// Both members exchange what they have to say, and come to the end.
  void require_orderly_end() {
    std::vector<std::future<std::vector<std::string>>> saying;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      saying.push_back(std::async(std::launch::async, [this, rank] {
        std::vector<std::string> said = (*members[rank])->exchange("of " + std::to_string(rank));
        (*members[rank])->exchange("again");
        (*members[rank])->report_checkpoint(7, {{"part-" + std::to_string(rank), "0", Bytes(1)}});
        (*members[rank])->report_result("{}");
        (*members[rank])->wait_until_finished();
        (*members[rank])->leave(true);
        return said;
      }));
    }
    for (auto& one : saying) {
      REQUIRE(one.get() == std::vector<std::string>{"of 0", "of 1"});
    }
    const std::optional<CoordinatorOutcome> outcome = server_->wait_for(20_s);
    REQUIRE(outcome.has_value());
    CHECK(outcome->ok);
    CHECK(outcome->results == std::vector<std::string>(2, "{}"));
    CHECK(members[0]->aborts() + members[1]->aborts() == 0);
    const std::lock_guard lock(mutex_);
    REQUIRE(checkpoints_.size() == 1);
    CHECK(checkpoints_[0].first == 7);
    CHECK(checkpoints_[0].second[0].at(0).name == "part-0");
  }

  void end_server() { server_.reset(); }

  std::vector<StepMeasurement> measured() {
    const std::lock_guard lock(mutex_);
    return measured_;
  }

 private:
  static std::string path(const std::string& method) {
    return "/rackrail.coordinator.v1.Coordinator/" + method;
  }
  static void prepare(grpc::ClientContext& context, const std::string& token) {
    if (!token.empty()) {
      context.AddMetadata(kTokenKey, token);
    }
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  }

  std::mutex mutex_;
  std::vector<std::pair<std::uint32_t, std::vector<std::vector<CheckpointFile>>>> checkpoints_;
  std::vector<StepMeasurement> measured_;
  std::unique_ptr<CoordinatorServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  int call_tag_ = 0;

 public:
  std::vector<std::unique_ptr<TestClient>> members;
  std::unique_ptr<proto::Coordinator::Stub> stub;
};

proto::Member member(std::uint32_t rank, std::uint32_t epoch) {
  proto::Member result;
  result.set_rank(rank);
  result.set_epoch(epoch);
  return result;
}

/// Whom the coordinator must not take for a member of the job: ranks that there are not, and those
/// of other epochs.
std::vector<proto::Member> impostors() {
  return {member(2, 1), member(kHuge, 1), member(0, 0), member(0, 2), member(0, kHuge)};
}

}  // namespace

TEST_CASE("hostile: whoever has no token or another one changes nothing, whatever is called") {
  Besieged job;
  proto::LeaveRequest leave;
  *leave.mutable_member() = member(0, 1);
  leave.set_reason("of a stranger");
  for (const std::string& method : kMethods) {
    for (const std::string token : {"", "wrong", "secret-of-this-tesT", "secret-of-this-test2"}) {
      const grpc::Status status = job.send(method, leave.SerializeAsString(), token);
      INFO(method << " with token '" << token << "': " << status.error_message());
      CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
      CHECK(status.error_message().find(kHostileToken) == std::string::npos);
    }
  }
  CHECK(job.send("NoSuchMethod", "", "wrong").error_code() == grpc::StatusCode::PERMISSION_DENIED);
  job.require_orderly_end();
}

TEST_CASE("hostile: whoever has no token is answered before he has sent a message") {
  Besieged job;
  for (const std::string& method : kMethods) {
    INFO(method);
    for (const std::string token : {"", "wrong"}) {
      CHECK(job.begin(method, token, std::chrono::seconds(20)).error_code() ==
            grpc::StatusCode::PERMISSION_DENIED);
    }
    // With it, the message is waited for.
    CHECK(job.begin(method, kHostileToken, std::chrono::milliseconds(300)).error_code() ==
          grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  // Nor is it looked at how long the message is.
  CHECK(job.send("ReportResult", std::string(kLargestReport + 1, 'x'), "wrong").error_code() ==
        grpc::StatusCode::PERMISSION_DENIED);
  job.require_orderly_end();
}

TEST_CASE("hostile: calls whose message never comes do not keep a coordinator from its end") {
  Besieged job;
  std::vector<std::future<grpc::StatusCode>> waiting;
  for (const std::string& method : kMethods) {
    waiting.push_back(std::async(std::launch::async, [&job, method] {
      return job.begin(method, kHostileToken, std::chrono::seconds(60)).error_code();
    }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // they are there by then
  job.require_orderly_end();
  job.end_server();
  for (auto& one : waiting) {
    const grpc::StatusCode code = one.get();
    CHECK(code != grpc::StatusCode::OK);
    CHECK(code != grpc::StatusCode::DEADLINE_EXCEEDED);
  }
}

TEST_CASE("hostile: messages that are cut off, of noise or too long are refused") {
  Besieged job;
  proto::CheckpointReport report;
  *report.mutable_member() = member(0, 1);
  for (int file = 0; file < 3; ++file) {
    proto::CheckpointFile& entry = *report.add_files();
    entry.set_name("part");
    entry.set_sha256("0123456789");
  }
  const std::string whole = report.SerializeAsString();
  for (std::size_t length = whole.size() - 1; length > whole.size() - 12; --length) {
    CHECK_FALSE(job.send("ReportCheckpoint", whole.substr(0, length)).ok());
  }
  // A length that says far more than there is.
  CHECK_FALSE(job.send("Contribute", std::string("\x1a\xff\xff\xff\xff\x07x", 7)).ok());
  CHECK(job.send("NoSuchMethod", whole).error_code() == grpc::StatusCode::UNIMPLEMENTED);
  std::mt19937 random(5);  // NOLINT: the same noise every time
  for (int round = 0; round < 40; ++round) {
    std::string noise(1 + random() % 300, '\0');
    for (char& byte : noise) {
      byte = static_cast<char>(random());
    }
    for (const std::string& method : kMethods) {
      if (method != "Join") {  // whose stream would stay open where noise happens to be a request
        job.send(method, noise);
      }
    }
  }
  CHECK(job.send("ReportResult", std::string(kLargestReport + 1, 'x')).error_code() ==
        grpc::StatusCode::RESOURCE_EXHAUSTED);
  job.require_orderly_end();
}

TEST_CASE("hostile: ranks that there are not and other epochs have no say") {
  Besieged job;
  using Stub = proto::Coordinator::Stub;
  for (const proto::Member& impostor : impostors()) {
    proto::LeaveRequest leave;
    *leave.mutable_member() = impostor;
    leave.set_reason("impostor");
    CHECK(job.call(&Stub::Leave, leave).ok());
    proto::ResultReport result;
    *result.mutable_member() = impostor;
    result.set_payload("wrong");
    CHECK(job.call(&Stub::ReportResult, result).ok());
    proto::Contribution part;
    *part.mutable_member() = impostor;
    part.set_part("wrong");
    CHECK(job.call(&Stub::Contribute, part).ok());
    proto::CheckpointReport checkpoint;
    *checkpoint.mutable_member() = impostor;
    checkpoint.set_step(7);
    CHECK(job.call(&Stub::ReportCheckpoint, checkpoint).ok());
    proto::TransportErrorReport error;
    *error.mutable_member() = impostor;
    error.set_peer(1);
    CHECK(job.call(&Stub::ReportTransportError, error).ok());
    proto::HeartbeatRequest beat;
    *beat.mutable_member() = impostor;
    proto::MeasuredStep& step = *beat.add_measured();
    step.set_samples(1);
    // An epoch that is over: this one is to come back, as it would if the job had gone on.
    CHECK(job.heartbeat(beat).come_back() == (impostor.epoch() == 0));
  }
  CHECK(job.measured().empty());
  job.require_orderly_end();
}

TEST_CASE("hostile: figures that cannot be are left out, and so is what is too much of them") {
  Besieged job;
  proto::HeartbeatRequest beat;
  *beat.mutable_member() = member(0, 1);
  beat.set_step(kHuge);
  beat.set_loss(std::numeric_limits<double>::quiet_NaN());
  beat.set_step_time_ps(kLeast);
  const auto add = [&beat](std::int64_t samples, std::int64_t step_time, std::int64_t compute) {
    proto::MeasuredStep& step = *beat.add_measured();
    step.set_samples(samples);
    step.set_step_time_ps(step_time);
    step.set_compute_time_ps(compute);
    return &step;
  };
  add(0, 1, 1);
  add(kLeast, 1, 1);
  add(1, kLeast, 1);
  add(1, 1, -1);
  proto::MeasuredStep* step = add(kMost, kMost, kMost);
  for (const std::uint32_t source : {2U, kHuge}) {
    step->add_received()->set_source(source);
  }
  step->add_received()->set_bytes(kLeast);
  step->add_received()->set_busy_ps(kLeast);
  for (int i = 0; i < 100'000; ++i) {
    step->add_received()->set_source(1);
  }
  for (int i = 0; i < 10'000; ++i) {
    add(1, 1, 1);
  }
  job.heartbeat(beat);
  proto::HeartbeatRequest last;
  *last.mutable_member() = member(0, 1);
  job.heartbeat(last);
  const auto seen = [&] { return job.measured().size(); };
  for (int i = 0; i < 2000 && seen() < std::size_t{kMostMeasured}; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::vector<StepMeasurement> measured = job.measured();
  REQUIRE(measured.size() == std::size_t{kMostMeasured});
  CHECK(measured[0].samples == kMost);
  CHECK(measured[0].received.size() == 2);  // there are two ranks
  const JobStatus status = job.status();
  CHECK(status.progress.step_time == Duration());
  for (const PairRate& one : status.rates) {
    CHECK(std::max(one.source, one.destination) < Rank(2));
  }
  job.require_orderly_end();
}

TEST_CASE("hostile: whoever asks for plans without end gets none that the job does not make") {
  Besieged job;            // which makes none
  std::mt19937 random(7);  // NOLINT: the same noise every time
  for (int i = 0; i < 200; ++i) {
    CHECK(job.replan(std::string(random() % 100, 'x')).epoch() == 0);
  }
  CHECK(job.status().epoch == 1);
  job.require_orderly_end();
}

TEST_CASE("hostile: what a coordinator says of its job is not believed either") {
  proto::JobStatus message;
  message.set_state(static_cast<proto::JobStatus::State>(77));
  message.set_world_size(2);
  message.set_plan_digest("a\nb\x1b[2J");
  message.set_step_time_ps(kLeast);
  proto::MemberStatus& member = *message.add_members();
  member.set_rank(kHuge);
  member.set_host(std::string(5000, '\n'));
  member.set_silence_ps(-1);
  for (const auto& [source, destination, rate] :
       {std::tuple(0U, 2U, kMost), std::tuple(kHuge, 1U, kMost), std::tuple(0U, 1U, kLeast),
        std::tuple(0U, 1U, kMost)}) {
    proto::PairRate& one = *message.add_rates();
    one.set_source(source);
    one.set_destination(destination);
    one.set_bytes_per_second(rate);
  }
  const JobStatus status = from_message(message);
  CHECK(status.plan_digest == "a b [2J");
  CHECK(status.progress.step_time == Duration());
  CHECK(status.members.at(0).host == std::string(1000, ' '));
  CHECK(status.members.at(0).silence == Duration());
  REQUIRE(status.rates.size() == 1);
  CHECK(status.rates[0].rate == Bandwidth(kMost));
  proto::ReplanReply reply;
  reply.set_reason("a\nb");
  reply.set_new_step_time_ps(kLeast);
  const ReplanAnswer answer = from_message(reply);
  CHECK(answer.reason == "a b");
  CHECK(answer.new_step_time == Duration());
  CHECK_FALSE(answer.kept_step_time.has_value());
}

TEST_CASE("hostile: reports of a member without bounds or sense are refused or do no harm") {
  Besieged job;
  using Stub = proto::Coordinator::Stub;
  proto::CheckpointReport checkpoint;
  *checkpoint.mutable_member() = member(0, 1);
  const auto refused = [&](const std::string& name, const std::string& digest, std::int64_t bytes) {
    checkpoint.clear_files();
    proto::CheckpointFile& file = *checkpoint.add_files();
    file.set_name(name);
    file.set_sha256(digest);
    file.set_bytes(bytes);
    return job.call(&Stub::ReportCheckpoint, checkpoint).error_code() ==
           grpc::StatusCode::INVALID_ARGUMENT;
  };
  CHECK(refused("../../etc/passwd", "0", 1));
  CHECK(refused("..", "0", 1));
  CHECK(refused("", "0", 1));
  CHECK(refused(std::string(256, 'a'), "0", 1));
  CHECK(refused("part", std::string(256, '0'), 1));
  CHECK(refused("part", "0", -1));
  CHECK_FALSE(refused("part", "0", 1));
  for (int i = 0; i < 100; ++i) {
    *checkpoint.add_files() = checkpoint.files(0);
  }
  CHECK(job.call(&Stub::ReportCheckpoint, checkpoint).error_code() ==
        grpc::StatusCode::INVALID_ARGUMENT);
  checkpoint.clear_files();
  for (std::uint32_t step = 1000; step < 2000; ++step) {
    checkpoint.set_step(step);
    CHECK(job.call(&Stub::ReportCheckpoint, checkpoint).ok());
  }
  proto::Contribution part;  // of exchanges that nobody comes to
  *part.mutable_member() = member(1, 1);
  part.set_part(std::string(1 << 20, 'x'));
  for (std::uint32_t round = 2; round < 40; ++round) {
    part.set_round(round);
    CHECK(job.call(&Stub::Contribute, part).ok());
  }
  job.require_orderly_end();
}

TEST_CASE("hostile: a request to join with impossible parts is refused, and the next one is not") {
  Besieged job;
  const auto join = [&](const std::function<void(proto::JoinRequest&)>& change) {
    proto::JoinRequest request;
    request.set_version("test");
    request.set_host("host");
    change(request);
    grpc::ClientContext context;
    context.AddMetadata(kTokenKey, kHostileToken);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const auto reader = job.stub->Join(&context, request);
    proto::Event event;
    CHECK_FALSE(reader->Read(&event));
    return reader->Finish().error_code();
  };
  using Code = grpc::StatusCode;
  const Code invalid = Code::INVALID_ARGUMENT;
  CHECK(join([](auto& r) { r.set_address(std::string(70'000, 'a')); }) == invalid);
  CHECK(join([](auto& r) { r.set_host(std::string(256, 'a')); }) == invalid);
  CHECK(join([](auto& r) { r.set_version(std::string(1 << 20, 'a')); }) == invalid);
  CHECK(join([](auto& r) { r.set_plan_digest(std::string(256, 'a')); }) == invalid);
  CHECK(join([](auto& r) { r.set_plan_digest("another"); }) == Code::FAILED_PRECONDITION);
  CHECK(join([](auto& r) { r.set_rank(kHuge); }) == Code::FAILED_PRECONDITION);
  CHECK(join([](auto& r) { r.set_world_size(kHuge); }) == Code::FAILED_PRECONDITION);
  // Who says that it was in the job: of a seat that there is not, of an epoch to come, of now.
  for (const auto& [seat, epoch] :
       {std::pair(kHuge, 1U), std::pair(0U, kHuge), std::pair(0U, 0U), std::pair(0U, 1U)}) {
    CHECK(join([&, seat = seat, epoch = epoch](auto& r) {
            r.mutable_returning()->set_seat(seat);
            r.mutable_returning()->set_epoch(epoch);
            r.mutable_returning()->set_step(kHuge);
            r.mutable_returning()->set_has_parameters(true);
          }) == Code::NOT_FOUND);
  }
  job.require_orderly_end();
}

}  // namespace rackrail::runtime::hostile_test
