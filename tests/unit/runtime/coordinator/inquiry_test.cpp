// What somebody who is no worker asks a job, and another plan because somebody asked for one.
#include "runtime/coordinator/inquiry.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"
#include "tests/unit/runtime/coordinator/test_crew.hpp"

namespace rackrail::runtime::inquiry_test {
namespace {

using test::Crew;
using test::crew_options;
using test::returning;
using test::TestClient;

Inquirer asking(const CoordinatorServer& server) {
  return {.coordinator = server.address(), .token = test::kCrewToken, .token_source = {}};
}

/// The first one with which `is_right`, or the last after twenty seconds.
JobStatus status_when(const CoordinatorServer& server,
                      const std::function<bool(const JobStatus&)>& is_right) {
  JobStatus status = ask_for_status(asking(server));
  for (int i = 0; i < 1000 && !is_right(status); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    status = ask_for_status(asking(server));
  }
  CHECK(is_right(status));
  return status;
}

CoordinatorOptions hasty_options(std::size_t workers) {
  CoordinatorOptions options = crew_options(workers);
  options.heartbeat_period = 50_ms;
  return options;
}

/// As workers that have done a step.
void train_a_step(const Crew& crew, const CoordinatorServer& server) {
  for (const auto& client : crew.clients) {
    (*client)->set_progress({.step = 1, .loss = 0.5, .step_time = 3_ms});
  }
  status_when(server, [](const JobStatus& now) { return now.progress.step == 1; });
}

/// A TCP port that takes connections and says nothing.
class MutePort {
 public:
  MutePort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(socket_, any, size) == 0);
    REQUIRE(listen(socket_, 8) == 0);
    REQUIRE(getsockname(socket_, any, &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~MutePort() { close(socket_); }
  MutePort(const MutePort&) = delete;
  MutePort& operator=(const MutePort&) = delete;
  HostPort address() const { return {"127.0.0.1", port_}; }

 private:
  int socket_;
  std::uint16_t port_ = 0;
};

}  // namespace

TEST_CASE("inquiry: how a job is, from before all have come") {
  CoordinatorOptions options = crew_options(2);
  options.on_measured = [](const StepMeasurement&) { return std::nullopt; };
  CoordinatorServer server(options);
  JobStatus status = ask_for_status(asking(server));
  CHECK(status.state == JobState::kGathering);
  CHECK(status.epoch == 0);
  CHECK(status.plan_digest == "first");
  CHECK(status.progress.world_size == 2);
  CHECK(status.progress.joined == 0);
  CHECK(status.members.empty());

  Crew crew(server.address());
  crew.join({TestClient::request(Rank(1)), TestClient::request(Rank(0))});
  status = ask_for_status(asking(server));
  CHECK(status.state == JobState::kRunning);
  CHECK(status.epoch == 1);
  REQUIRE(status.members.size() == 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const MemberStatus& member = status.members[rank];
    CHECK(member.rank == Rank(rank));
    CHECK(member.seat == Rank(rank));
    CHECK(member.host == "host-t");
    CHECK(member.pid == 1000 + static_cast<std::int64_t>(rank));
    CHECK(member.is_present);
    CHECK(member.silence < 20_s);
  }
  CHECK(status.rates.empty());

  for (const auto& client : crew.clients) {
    (*client)->set_progress({.step = 7, .loss = 0.5, .step_time = 3_ms});
  }
  (*crew.clients[0])->set_progress({.step = 6, .loss = 1.5, .step_time = 4_ms});  // rank 1
  (*crew.clients[0])
      ->add_measurement({.rank = Rank(1),
                         .step = 6,
                         .samples = 1,
                         .step_time = 4_ms,
                         .compute_time = 1_ms,
                         .received = {{Rank(0), Bytes(3'000'000), 2_ms}}});
  status = status_when(server, [](const JobStatus& now) {
    return now.progress.step == 6 && !now.rates.empty() && now.members[0].progress.step == 7;
  });
  CHECK(status.progress.loss == 1.0);
  CHECK(status.progress.step_time == 4_ms);
  CHECK(status.members[1].progress.step_time == 4_ms);
  REQUIRE(status.rates.size() == 1);
  CHECK(status.rates[0].source == Rank(0));
  CHECK(status.rates[0].destination == Rank(1));
  CHECK(status.rates[0].rate == Bandwidth(1'500'000'000));
  CHECK(status.rates_left_out == 0);
}

TEST_CASE("inquiry: ranks and members after a loss, and between two epochs") {
  CoordinatorOptions options = crew_options(3);
  options.on_loss = [](const Loss&) { return EpochPlan{"plan of two", "second"}; };
  options.on_measured = [](const StepMeasurement&) { return std::nullopt; };
  CoordinatorServer server(options);
  Crew first(server.address());
  first.join(
      {TestClient::request(Rank(0)), TestClient::request(Rank(1)), TestClient::request(Rank(2))});
  (*first.clients[0])
      ->add_measurement({.rank = Rank(0),
                         .step = 1,
                         .samples = 1,
                         .step_time = 4_ms,
                         .compute_time = 1_ms,
                         .received = {{Rank(1), Bytes(1000), 2_ms}}});
  status_when(server, [](const JobStatus& now) { return now.rates.size() == 1; });
  first.clients[1].reset();
  CHECK(first.clients[0]->wait_for_abort().has_value());
  JobStatus status =
      status_when(server, [](const JobStatus& now) { return now.state == JobState::kRegrouping; });
  CHECK(status.epoch == 1);
  REQUIRE(status.members.size() == 2);
  CHECK_FALSE(status.members[0].is_present);
  CHECK(status.members[1].seat == Rank(2));
  Crew second(server.address());
  second.join({returning(0, 1, 4, 3), returning(2, 1, 4, 3)});
  status = ask_for_status(asking(server));
  CHECK(status.state == JobState::kRegrouping);  // they have yet to meet
  test::meet({second.clients[0].get(), second.clients[1].get()});
  status =
      status_when(server, [](const JobStatus& now) { return now.state == JobState::kRunning; });
  CHECK(status.epoch == 2);
  CHECK(status.plan_digest == "second");
  CHECK(status.progress.step == 4);
  CHECK(status.rates.empty());  // ranks are others now
  REQUIRE(status.members.size() == 2);
  CHECK(status.members[1].rank == Rank(1));
  CHECK(status.members[1].seat == Rank(2));
}

TEST_CASE("inquiry: who has no token, or asks where there is no coordinator, is told so") {
  std::optional<CoordinatorServer> server(std::in_place, crew_options(1));
  const HostPort address = server->address();
  const Inquirer stranger{.coordinator = address, .token = "wrong", .token_source = "secret.txt"};
  CHECK_THROWS_WITH(ask_for_status(stranger), Catch::Contains("secret.txt") &&
                                                  Catch::Contains("a wrong token") &&
                                                  Catch::Contains(to_string(address)));
  CHECK_THROWS_AS(ask_for_replan(stranger), ConfigError);
  CHECK_THROWS_WITH(ask_for_status({.coordinator = address, .token = "", .token_source = ""}),
                    Catch::Contains("RACKRAIL_JOB_TOKEN") && Catch::Contains("no token"));
  server.reset();
  CHECK_THROWS_WITH(ask_for_status(stranger),
                    "no coordinator of a job answers at " + to_string(address));
  const MutePort mute;
  CHECK_THROWS_AS(
      ask_for_status({.coordinator = mute.address(), .token = "t", .token_source = ""}, 300_ms),
      RuntimeFailure);
}

TEST_CASE("inquiry: another plan, which all take up because somebody asked for it") {
  CoordinatorOptions options = hasty_options(2);
  std::mutex mutex;
  std::vector<EpochBegin> begun;
  options.on_replan = [] {
    return PlanOffer{.reason = "it is shorter",
                     .plan = EpochPlan{"better plan", "second"},
                     .kept_step_time = 3_ms,
                     .new_step_time = 2_ms};
  };
  options.on_epoch = [&](const EpochBegin& begin) {
    const std::lock_guard lock(mutex);
    begun.push_back(begin);
  };
  CoordinatorServer server(options);
  CHECK(ask_for_replan(asking(server)).reason == "not all workers have come yet");
  Crew first(server.address());
  first.join({TestClient::request(Rank(0)), TestClient::request(Rank(1))});
  CHECK(ask_for_replan(asking(server)).reason == "no step of this epoch is done yet");
  train_a_step(first, server);
  const ReplanAnswer answer = ask_for_replan(asking(server));
  CHECK(answer.epoch == 2);
  CHECK(answer.reason == "it is shorter");
  CHECK(answer.plan_digest == "second");
  CHECK(answer.kept_step_time == 3_ms);
  CHECK(answer.new_step_time == 2_ms);
  for (const auto& client : first.clients) {
    CHECK(client->wait_for_abort() == "it is shorter");
    CHECK((*client)->is_to_come_back());
  }
  CHECK(ask_for_replan(asking(server)).reason == "an epoch of the membership is just beginning");
  Crew second(server.address());
  second.join({returning(0, 1, 4, 3), returning(1, 1, 3, 2)});
  for (const Welcome& welcome : second.welcomes) {
    CHECK(welcome.epoch == 2);
    CHECK(welcome.step == 3);
    CHECK(welcome.plan == "better plan");
  }
  test::meet({second.clients[0].get(), second.clients[1].get()});
  (*second.clients[0])->report_result("{}");
  CHECK(ask_for_replan(asking(server)).reason == "the job is about to end");
  server.stop("enough");
  REQUIRE(server.wait_for(20_s).has_value());
  const std::lock_guard lock(mutex);
  REQUIRE(begun.size() == 1);
  CHECK(begun[0].is_change);
  CHECK(begun[0].lost.empty());
  CHECK(begun[0].step == 3);
}

TEST_CASE("inquiry: where there is no other plan, the job goes on and it is said why") {
  CoordinatorOptions options = hasty_options(1);
  std::promise<void> may_answer;
  std::shared_future<void> answering = may_answer.get_future().share();
  std::promise<void> asked;
  SECTION("it has no plans to make") {
    CoordinatorServer server(options);
    Crew crew(server.address());
    crew.join({TestClient::request(Rank(0))});
    train_a_step(crew, server);
    const ReplanAnswer answer = ask_for_replan(asking(server));
    CHECK(answer.epoch == 0);
    CHECK(answer.plan_digest == "first");
    CHECK_THAT(answer.reason, Catch::Contains("not started so that it could be planned again"));
  }
  SECTION("making it fails") {
    options.on_replan = []() -> PlanOffer { throw PlanError("too few\nsamples"); };
    CoordinatorServer server(options);
    Crew crew(server.address());
    crew.join({TestClient::request(Rank(0))});
    train_a_step(crew, server);
    CHECK(ask_for_replan(asking(server)).reason == "no plan: too few samples");
    CHECK(ask_for_replan(asking(server)).reason == "no plan: too few samples");  // may ask again
    CHECK(crew.clients[0]->aborts() == 0);
  }
  SECTION("the one in use is as good; and only one plan is made at a time") {
    options.on_replan = [&] {
      asked.set_value();
      answering.wait();
      return PlanOffer{.reason = "plan kept", .kept_step_time = 3_ms, .new_step_time = 3_ms};
    };
    CoordinatorServer server(options);
    Crew crew(server.address());
    crew.join({TestClient::request(Rank(0))});
    train_a_step(crew, server);
    std::future<ReplanAnswer> first =
        std::async(std::launch::async, [&] { return ask_for_replan(asking(server)); });
    asked.get_future().wait();
    CHECK(ask_for_replan(asking(server)).reason == "somebody else has just asked for another plan");
    CHECK(ask_for_status(asking(server)).epoch == 1);  // does not wait for the plan
    may_answer.set_value();
    const ReplanAnswer answer = first.get();
    CHECK(answer.epoch == 0);
    CHECK(answer.reason == "plan kept");
    CHECK(answer.plan_digest == "first");
    CHECK(answer.new_step_time == 3_ms);
    CHECK(crew.clients[0]->aborts() == 0);
  }
  SECTION("the job ended before there was one") {
    options.on_replan = [&] {
      asked.set_value();
      answering.wait();
      return PlanOffer{.reason = "it is shorter", .plan = EpochPlan{"better plan", "second"}};
    };
    CoordinatorServer server(options);
    Crew crew(server.address());
    crew.join({TestClient::request(Rank(0))});
    train_a_step(crew, server);
    std::future<ReplanAnswer> first =
        std::async(std::launch::async, [&] { return ask_for_replan(asking(server)); });
    asked.get_future().wait();
    (*crew.clients[0])->report_result("{}");
    may_answer.set_value();
    const ReplanAnswer answer = first.get();
    CHECK(answer.epoch == 0);
    CHECK_THAT(answer.reason, Catch::Contains("to its end"));
    CHECK((*crew.clients[0])->wait_until_finished());
  }
}

}  // namespace rackrail::runtime::inquiry_test
