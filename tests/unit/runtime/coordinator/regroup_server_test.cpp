// Coordinator and clients when a member, or the coordinator itself, is lost and the job goes on.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"

namespace rackrail::runtime {
namespace {

using test::TestClient;

constexpr const char* kCrewToken = "a-token-of-this-test";

CoordinatorOptions crew_options(std::size_t workers) {
  CoordinatorOptions options;
  options.token = kCrewToken;
  options.membership.world_size = workers;
  options.membership.version = "test";
  options.membership.plan_digest = "first";
  options.plan = "plan for all";
  options.job_options = "{}";
  return options;
}

/// Workers that come at the same time, and what they are told.
class Crew {
 public:
  explicit Crew(const HostPort& address) : address_(address) {}

  void join(const std::vector<JoinRequest>& requests) {
    std::vector<std::future<Welcome>> waiting;
    for (const JoinRequest& request : requests) {
      clients.push_back(std::make_unique<TestClient>(address_, kCrewToken));
      waiting.push_back(std::async(std::launch::async, [&client = *clients.back(), request] {
        return client->join(request, 30_s);
      }));
    }
    for (std::future<Welcome>& one : waiting) {
      welcomes.push_back(one.get());
    }
  }

  std::vector<std::unique_ptr<TestClient>> clients;
  std::vector<Welcome> welcomes;

 private:
  HostPort address_;
};

JoinRequest returning(std::size_t seat, std::uint32_t epoch, std::uint32_t step,
                      std::uint32_t oldest) {
  JoinRequest request = TestClient::request(std::nullopt);
  request.returning =
      Returning{.seat = Rank(seat), .epoch = epoch, .step = step, .oldest_step = oldest};
  return request;
}

}  // namespace

TEST_CASE("those who are left come back to ranks without gaps, one step and a plan for them") {
  CoordinatorOptions options = crew_options(4);
  std::mutex mutex;
  std::vector<Loss> losses;
  std::vector<EpochRecord> kept;
  options.on_loss = [&](const Loss& loss) {
    const std::lock_guard lock(mutex);
    losses.push_back(loss);
    return EpochPlan{"plan for " + std::to_string(loss.left.size()), "second"};
  };
  options.keep = [&](const EpochRecord& epoch) {
    const std::lock_guard lock(mutex);
    kept.push_back(epoch);
  };
  CoordinatorServer server(options);
  Crew first(server.address());
  std::vector<JoinRequest> requests;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    requests.push_back(TestClient::request(Rank(rank)));
  }
  first.join(requests);
  first.clients[1].reset();  // without a good-bye
  for (const std::size_t rank : {0U, 2U, 3U}) {
    REQUIRE(first.clients[rank]->wait_for_abort().has_value());
    CHECK((*first.clients[rank])->is_to_come_back());
  }
  Crew second(server.address());
  second.join({returning(3, 1, 8, 7), returning(0, 1, 7, 6), returning(2, 1, 7, 7)});
  CHECK(second.welcomes[0].rank == Rank(2));
  CHECK(second.welcomes[1].rank == Rank(0));
  CHECK(second.welcomes[2].rank == Rank(1));
  for (const Welcome& welcome : second.welcomes) {
    CHECK(welcome.epoch == 2);
    CHECK(welcome.world_size == 3);
    CHECK(welcome.step == 7);
    CHECK(welcome.plan == "plan for 3");
  }
  // Nobody else can: who was given up least of all.
  TestClient late(server.address(), kCrewToken);
  CHECK_THROWS_WITH(late->join(returning(1, 1, 8, 7), 30_s), Catch::Contains("was given up"));

  const std::lock_guard lock(mutex);
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].lost == std::vector{Rank(1)});
  CHECK(losses[0].left == std::vector{Rank(0), Rank(2), Rank(3)});
  REQUIRE(kept.size() == 2);
  CHECK(kept[0].plan.plan == "plan for all");
  CHECK(kept[1].seats == losses[0].left);
  CHECK(kept[1].step == 7);
}

TEST_CASE("a restarted coordinator takes up those who come back, and gives the others up") {
  CoordinatorOptions options = crew_options(4);
  options.return_deadline = 1_s;
  options.on_loss = [](const Loss& loss) {
    return EpochPlan{"plan for " + std::to_string(loss.left.size()), "second"};
  };
  options.recovered = EpochRecord{.epoch = 3,
                                  .seats = {Rank(0), Rank(2), Rank(3)},
                                  .since = {1, 2, 1},
                                  .step = 20,
                                  .plan = {.plan = "plan of epoch 3", .digest = "third"}};
  SECTION("all, but who was replaced") {
    CoordinatorServer server(options);
    TestClient woken(server.address(), kCrewToken);
    CHECK_THROWS_WITH(woken->join(returning(2, 1, 8, 7), 30_s), Catch::Contains("was given up"));
    Crew crew(server.address());
    crew.join({returning(0, 3, 20, 20), returning(2, 3, 20, 20), returning(3, 3, 20, 20)});
    CHECK(crew.welcomes[1].rank == Rank(1));
  }
  SECTION("all") {
    CoordinatorServer server(options);
    Crew crew(server.address());
    // One had not been welcome to epoch 3 when the coordinator was killed.
    crew.join({returning(0, 3, 20, 20), returning(2, 2, 21, 20), returning(3, 3, 20, 20)});
    for (const Welcome& welcome : crew.welcomes) {
      CHECK(welcome.epoch == 4);
      CHECK(welcome.step == 20);
      CHECK(welcome.plan == "plan of epoch 3");
    }
  }
  SECTION("all but one") {
    CoordinatorServer server(options);
    Crew crew(server.address());
    crew.join({returning(0, 3, 25, 24), returning(3, 3, 25, 24)});
    CHECK(crew.welcomes[1].rank == Rank(1));
    CHECK(crew.welcomes[1].plan == "plan for 2");
  }
  SECTION("nobody") {
    CoordinatorServer server(options);
    const auto outcome = server.wait_for(20_s);
    REQUIRE(outcome.has_value());
    CHECK_FALSE(outcome->ok);
    CHECK_THAT(outcome->reason.line, Catch::Contains("fewer than 2 workers are left"));
  }
  SECTION("some that are not of the same moment") {
    CoordinatorServer server(options);
    Crew crew(server.address());
    CHECK_THROWS_WITH(
        crew.join({returning(0, 3, 20, 19), returning(2, 3, 22, 21), returning(3, 3, 20, 19)}),
        Catch::Contains("more than one step apart"));
  }
}

TEST_CASE("a restarted coordinator waits until nothing else has its port") {
  CoordinatorOptions options = crew_options(1);
  options.keep = [](const EpochRecord&) {
  };  // so that nobody else is given its port (lasting_ports)
  auto other = std::make_unique<CoordinatorServer>(options);
  options.listen = other->address();
  options.recovered = EpochRecord{.epoch = 1,
                                  .seats = {Rank(0)},
                                  .since = {1},
                                  .step = 0,
                                  .plan = {.plan = "plan", .digest = "digest"}};
  std::jthread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    other.reset();
  });
  const CoordinatorServer server(options);
  CHECK(server.address() == options.listen);
}

TEST_CASE("a coordinator that may come back has a port that no connection is given unasked") {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int lowest = 0;
  REQUIRE(range >> lowest);
  if (lowest <= 10000) {
    WARN("the ephemeral ports begin at " << lowest << ": nothing is free below");
    return;
  }
  CoordinatorOptions options = crew_options(1);
  options.keep = [](const EpochRecord&) {};
  const CoordinatorServer server(options);
  const CoordinatorServer another(options);
  CHECK(server.address().port < lowest);
  CHECK(server.address().port >= 10000);
  CHECK(another.address().port != server.address().port);
}

TEST_CASE("what is measured may bring another plan, which all take up without a loss") {
  CoordinatorOptions options = crew_options(2);
  options.heartbeat_period = 10_s;  // measurements do not wait for it
  std::mutex mutex;
  std::vector<StepMeasurement> measured;
  std::vector<EpochBegin> begun;
  options.on_measured = [&](const StepMeasurement& step) -> std::optional<PlanChange> {
    const std::lock_guard lock(mutex);
    measured.push_back(step);
    if (step.step == 3 && step.rank == Rank(1)) {
      return PlanChange{"a link is slow", {"better plan", "second"}};
    }
    return std::nullopt;
  };
  options.on_epoch = [&](const EpochBegin& begin) {
    const std::lock_guard lock(mutex);
    begun.push_back(begin);
  };
  CoordinatorServer server(options);
  Crew first(server.address());
  first.join({TestClient::request(Rank(0)), TestClient::request(Rank(1))});
  StepMeasurement step{.rank = Rank(1),
                       .step = 2,
                       .samples = 32,
                       .step_time = 5_ms,
                       .compute_time = 3_ms,
                       .received = {{Rank(0), Bytes(1000), 1_ms}, {Rank(7), Bytes(1), 1_ms}}};
  (*first.clients[1])->add_measurement(step);
  step.step = 3;
  (*first.clients[1])->add_measurement(step);
  for (const auto& client : first.clients) {
    CHECK(client->wait_for_abort() == "a link is slow");
    CHECK((*client)->is_to_come_back());
  }
  Crew second(server.address());
  SECTION("all come back") {
    second.join({returning(0, 1, 4, 3), returning(1, 1, 3, 2)});
    for (const Welcome& welcome : second.welcomes) {
      CHECK(welcome.epoch == 2);
      CHECK(welcome.world_size == 2);
      CHECK(welcome.step == 3);
      CHECK(welcome.plan == "better plan");
    }
    std::future<void> meeting =
        std::async(std::launch::async, [&] { (*second.clients[0])->exchange("here"); });
    (*second.clients[1])->exchange("here");
    meeting.get();
    server.stop("enough");
    REQUIRE(server.wait_for(20_s).has_value());
    const std::lock_guard lock(mutex);
    REQUIRE(begun.size() == 1);
    CHECK(begun[0].is_change);
    CHECK(begun[0].lost.empty());
    CHECK(begun[0].reason == "a link is slow");
    CHECK(begun[0].step == 3);
  }
  SECTION("one is lost meanwhile, and there is nobody to ask for a plan") {
    std::future<void> waiting = std::async(std::launch::async, [&] {
      CHECK_THROWS_WITH(second.join({returning(0, 1, 4, 3)}),
                        Catch::Contains("a link is slow; the worker that was rank 1 was lost"));
    });
    first.clients[1].reset();
    waiting.get();
  }
  const std::lock_guard lock(mutex);
  REQUIRE(measured.size() == 2);
  CHECK(measured[0].rank == Rank(1));
  CHECK(measured[0].step == 2);
  CHECK(measured[0].samples == 32);
  CHECK(measured[0].step_time == 5_ms);
  CHECK(measured[0].compute_time == 3_ms);
  REQUIRE(measured[0].received.size() == 1);  // there is no rank 7
  CHECK(measured[0].received[0].source == Rank(0));
  CHECK(measured[0].received[0].bytes == Bytes(1000));
  CHECK(measured[0].received[0].busy == 1_ms);
}

TEST_CASE("a job that has begun to end takes up no other plan") {
  CoordinatorOptions options = crew_options(2);
  std::promise<void> asked;
  options.on_measured = [&](const StepMeasurement&) {
    asked.set_value();
    return PlanChange{"too late", {"better plan", "second"}};
  };
  CoordinatorServer server(options);
  Crew crew(server.address());
  crew.join({TestClient::request(Rank(0)), TestClient::request(Rank(1))});
  (*crew.clients[0])->report_result("{}");
  (*crew.clients[1])
      ->add_measurement({.rank = Rank(1),
                         .step = 1,
                         .samples = 1,
                         .step_time = 1_ms,
                         .compute_time = 1_ms,
                         .received = {}});
  asked.get_future().get();
  (*crew.clients[1])->report_result("{}");
  CHECK((*crew.clients[0])->wait_until_finished());
  CHECK((*crew.clients[1])->wait_until_finished());
}

TEST_CASE("a worker that had no answer comes back, and the others with it") {
  CoordinatorOptions options = crew_options(2);
  options.on_loss = [](const Loss&) -> EpochPlan { throw RuntimeFailure("nobody was lost"); };
  CoordinatorServer server(options);
  Crew first(server.address());
  first.join({TestClient::request(Rank(0)), TestClient::request(Rank(1))});
  Crew second(server.address());
  std::future<void> doubtful =
      std::async(std::launch::async, [&] { second.join({returning(1, 1, 4, 3)}); });
  // Of the other one nobody has heard anything: it is told.
  REQUIRE(first.clients[0]->wait_for_abort().has_value());
  CHECK((*first.clients[0])->is_to_come_back());
  Crew third(server.address());
  third.join({returning(0, 1, 5, 4)});
  doubtful.get();
  CHECK(second.welcomes[0].rank == Rank(1));
  CHECK(third.welcomes[0].rank == Rank(0));
  for (const Crew* crew : {&second, &third}) {
    CHECK(crew->welcomes[0].epoch == 2);
    CHECK(crew->welcomes[0].step == 4);
    CHECK(crew->welcomes[0].plan == "plan for all");
  }
}

namespace {

/// A job of three whose coordinator says what it asks for.
class Waiting {
 public:
  explicit Waiting(std::optional<Duration> replacement_deadline,
                   std::function<EpochPlan(const Loss&)> on_loss = {}) {
    CoordinatorOptions options = crew_options(3);
    options.replacement_deadline = replacement_deadline;
    options.on_loss = [this, on_loss](const Loss& loss) {
      {
        const std::lock_guard lock(mutex_);
        asked_.push_back(loss);
      }
      return on_loss ? on_loss(loss)
                     : EpochPlan{"plan for " + std::to_string(loss.left.size()), "another"};
    };
    options.on_vacant = [this](Rank seat) {
      const std::lock_guard lock(mutex_);
      vacant_.push_back(seat);
    };
    options.on_epoch = [this](const EpochBegin& begin) {
      const std::lock_guard lock(mutex_);
      begun_.push_back(begin);
    };
    server.emplace(options);
    first.emplace(server->address());
    first->join(
        {TestClient::request(Rank(0)), TestClient::request(Rank(1)), TestClient::request(Rank(2))});
  }

  void lose(std::size_t rank) {
    first->clients[rank].reset();
    for (std::size_t other = 0; other < first->clients.size(); ++other) {
      if (other != rank) {
        REQUIRE(first->clients[other]->wait_for_abort().has_value());
        CHECK((*first->clients[other])->is_to_come_back());
      }
    }
  }

  std::vector<Loss> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  std::vector<Rank> vacant() {
    const std::lock_guard lock(mutex_);
    return vacant_;
  }
  std::vector<EpochBegin> begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  HostPort address() const { return server->address(); }

 private:
  std::mutex mutex_;
  std::vector<Loss> asked_;
  std::vector<Rank> vacant_;
  std::vector<EpochBegin> begun_;

 public:
  std::optional<CoordinatorServer> server;  // its callbacks use what is above
  std::optional<Crew> first;
};

/// All of them at the coordinator, as workers are before they train.
void meet(std::vector<TestClient*> clients) {
  std::vector<std::future<void>> meeting;
  for (TestClient* client : clients) {
    meeting.push_back(std::async(std::launch::async, [client] { (*client)->exchange("here"); }));
  }
  for (std::future<void>& one : meeting) {
    one.get();
  }
}

}  // namespace

TEST_CASE(
    "a job that waits goes on by the same plan with another worker in the place of the lost") {
  Waiting job(60_s);
  job.lose(1);
  Crew second(job.address());
  // A new process, with or without a rank, in the order in which they happen to come.
  const bool has_rank = GENERATE(true, false);
  JoinRequest newcomer = TestClient::request(has_rank ? std::optional(Rank(1)) : std::nullopt);
  newcomer.plan_digest = "first";
  newcomer.world_size = 3;
  second.join({returning(2, 1, 8, 7), newcomer, returning(0, 1, 7, 6)});
  CHECK(second.welcomes[1].rank == Rank(1));
  for (const Welcome& welcome : second.welcomes) {
    CHECK(welcome.epoch == 2);
    CHECK(welcome.world_size == 3);
    CHECK(welcome.step == 7);
    CHECK(welcome.plan == "plan for all");
    CHECK(welcome.newcomers == std::vector{Rank(1)});
  }
  meet({second.clients[0].get(), second.clients[1].get(), second.clients[2].get()});
  CHECK(job.vacant() == std::vector{Rank(1)});
  CHECK(job.asked().empty());

  // Who had the place does not disturb, whether the job runs or is between two epochs.
  TestClient woken(job.address(), kCrewToken);
  CHECK_THROWS_WITH(woken->join(returning(1, 1, 8, 7), 30_s), Catch::Contains("was given up"));
  CHECK_FALSE(woken->coordinator_knows());  // it says so itself
  second.clients[0].reset();
  REQUIRE(second.clients[1]->wait_for_abort().has_value());
  TestClient again(job.address(), kCrewToken);
  CHECK_THROWS_WITH(again->join(returning(1, 1, 8, 7), 30_s), Catch::Contains("was given up"));

  // The newcomer of before is one of them now.
  Crew third(job.address());
  third.join({returning(1, 2, 9, 8), returning(0, 2, 9, 8), TestClient::request(Rank(2))});
  for (const Welcome& welcome : third.welcomes) {
    CHECK(welcome.epoch == 3);
    CHECK(welcome.step == 9);
    CHECK(welcome.newcomers == std::vector{Rank(2)});
  }
}

TEST_CASE("a newcomer that was not given any parameters comes back as a newcomer") {
  Waiting job(60_s);
  job.lose(1);
  Crew second(job.address());
  second.join({returning(2, 1, 8, 7), TestClient::request(Rank(1)), returning(0, 1, 8, 7)});
  second.clients[0].reset();
  REQUIRE(second.clients[1]->wait_for_abort().has_value());
  JoinRequest nothing = returning(1, 2, 0, 0);
  nothing.returning->has_parameters = false;
  Crew third(job.address());
  third.join({nothing, returning(0, 2, 8, 7), TestClient::request(Rank(2))});
  for (const Welcome& welcome : third.welcomes) {
    CHECK(welcome.step == 8);
    CHECK(welcome.newcomers == std::vector{Rank(1), Rank(2)});
  }
}

TEST_CASE("a newcomer that fails before it has parameters is lost, and the job is not") {
  Waiting job(60_s);
  job.lose(1);
  Crew second(job.address());
  second.join({returning(2, 1, 8, 7), TestClient::request(Rank(1)), returning(0, 1, 8, 7)});
  (*second.clients[1])->leave(false, {"there is no data here", true});
  for (const std::size_t client : {0U, 2U}) {
    REQUIRE(second.clients[client]->wait_for_abort().has_value());
    CHECK((*second.clients[client])->is_to_come_back());
  }
  Crew third(job.address());
  third.join({returning(2, 2, 8, 7), TestClient::request(Rank(1)), returning(0, 2, 8, 7)});
  for (const Welcome& welcome : third.welcomes) {
    CHECK(welcome.epoch == 3);
    CHECK(welcome.world_size == 3);
    CHECK(welcome.newcomers == std::vector{Rank(1)});
  }
  meet({third.clients[0].get(), third.clients[1].get(), third.clients[2].get()});
  // From then on it is one of them, and its failure is the job's.
  (*third.clients[1])->leave(false, {"the loss is not a number", false});
  REQUIRE(third.clients[0]->wait_for_abort().has_value());
  CHECK_FALSE((*third.clients[0])->is_to_come_back());
  CHECK_THAT(*third.clients[0]->wait_for_abort(), Catch::Contains("the loss is not a number"));
  CHECK(job.vacant() == std::vector<Rank>(2, Rank(1)));
}

TEST_CASE("one that came and was lost at once has taken no place") {
  Waiting job({});
  job.lose(2);
  Crew second(job.address());
  second.join({returning(0, 1, 8, 7), returning(1, 1, 8, 7)});
  meet({second.clients[0].get(), second.clients[1].get()});
  Crew newcomer(job.address());
  std::future<void> coming =
      std::async(std::launch::async, [&] { newcomer.join({TestClient::request(Rank(2))}); });
  for (auto& client : second.clients) {
    REQUIRE(client->wait_for_abort().has_value());
  }
  Crew third(job.address());
  third.join({returning(0, 2, 9, 8), returning(1, 2, 9, 8)});
  coming.get();
  for (auto& client : third.clients) {  // as of a cable that is cut
    (*client)->say_transport_error(Rank(2), "unreachable", {});
    REQUIRE(client->wait_for_abort().has_value());
    CHECK((*client)->is_to_come_back());
  }
  Crew fourth(job.address());
  fourth.join({returning(0, 3, 9, 8), returning(1, 3, 9, 8)});
  meet({fourth.clients[0].get(), fourth.clients[1].get()});
  for (int i = 0; i < 4000 && job.begun().size() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  REQUIRE(job.begun().size() >= 2);
  const EpochBegin begin = job.begun()[1];
  CHECK(begin.seats == std::vector{Rank(0), Rank(1)});
  CHECK(begin.taken.empty());
  CHECK(begin.lost == std::vector{Rank(2)});
  CHECK_THAT(begin.reason, Catch::Contains("came; rank 2") && Catch::Contains("unreachable"));
}

TEST_CASE("a job that waited for nobody goes on without") {
  Waiting job(200_ms);
  job.lose(1);
  Crew second(job.address());
  second.join({returning(2, 1, 8, 7), returning(0, 1, 8, 7)});
  for (const Welcome& welcome : second.welcomes) {
    CHECK(welcome.world_size == 2);
    CHECK(welcome.plan == "plan for 2");
    CHECK(welcome.newcomers.empty());
  }
  REQUIRE(job.asked().size() == 1);
  CHECK(job.asked()[0].left == std::vector{Rank(0), Rank(2)});
  CHECK(job.asked()[0].lost == std::vector{Rank(1)});
}

TEST_CASE("what kills every replacement at once is not waited for for ever") {
  Waiting job(60_s);
  job.lose(1);
  int deaths = 0;
  while (job.asked().empty() && deaths < 50) {
    CoordinatorClient doomed(job.address(), kCrewToken, {});
    CHECK_THROWS_AS(doomed.join(TestClient::request(Rank(1)), 200_ms), RuntimeFailure);
    ++deaths;
  }
  CHECK(deaths >= 5);
  Crew second(job.address());
  second.join({returning(2, 1, 8, 7), returning(0, 1, 8, 7)});
  CHECK(second.welcomes[0].world_size == 2);
  CHECK(job.vacant() == std::vector<Rank>(5, Rank(1)));
}

TEST_CASE("a replacement that ends before it came is replaced at once, but not for ever") {
  Waiting job(60_s);
  constexpr std::int64_t kNobody = -1;  // no worker's process id
  const auto vacancies_become = [&](std::size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (job.vacant().size() < count && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return job.vacant().size() == count;
  };
  job.server->worker_ended(Rank(1), kNobody);  // nobody is waited for
  job.lose(1);
  CHECK(vacancies_become(1));
  // The lost one itself, whose seat is vacant because its stream broke.
  job.server->worker_ended(Rank(1), TestClient::request(Rank(1)).pid);
  job.server->worker_ended(Rank(2), kNobody);
  for (std::size_t count = 2; count <= 5; ++count) {
    CHECK(job.vacant().size() == count - 1);
    job.server->worker_ended(Rank(1), kNobody);
    CHECK(vacancies_become(count));
  }
  CHECK(job.asked().empty());
  job.server->worker_ended(Rank(1), kNobody);
  Crew second(job.address());
  second.join({returning(2, 1, 8, 7), returning(0, 1, 8, 7)});
  CHECK(second.welcomes[0].world_size == 2);
  CHECK(job.vacant().size() == 5);
}

TEST_CASE("who comes after the job has gone on without is taken up in the next epoch") {
  Waiting job(std::nullopt);
  job.lose(1);
  Crew second(job.address());
  second.join({returning(2, 1, 8, 7), returning(0, 1, 8, 7)});
  CHECK(second.welcomes[0].world_size == 2);
  meet({second.clients[0].get(), second.clients[1].get()});

  Crew newcomer(job.address());
  std::future<void> coming =
      std::async(std::launch::async, [&] { newcomer.join({TestClient::request(std::nullopt)}); });
  for (const auto& client : second.clients) {
    CHECK_THAT(client->wait_for_abort().value_or("none"), Catch::Contains("came"));
    CHECK((*client)->is_to_come_back());
  }
  Crew third(job.address());
  third.join({returning(0, 2, 11, 10), returning(2, 2, 12, 11)});
  coming.get();
  CHECK(newcomer.welcomes[0].rank == Rank(1));
  CHECK(newcomer.welcomes[0].plan == "plan for 3");
  CHECK(newcomer.welcomes[0].step == 11);
  CHECK(newcomer.welcomes[0].newcomers == std::vector{Rank(1)});
  meet({third.clients[0].get(), third.clients[1].get(), newcomer.clients[0].get()});
  job.server->stop("enough");
  REQUIRE(job.server->wait_for(20_s).has_value());
  const std::vector<EpochBegin> begun = job.begun();
  REQUIRE(begun.size() == 2);
  CHECK(begun[0].lost == std::vector{Rank(1)});
  CHECK(begun[0].taken.empty());
  CHECK(begun[1].lost.empty());
  CHECK(begun[1].taken == std::vector{Rank(1)});
  CHECK(begun[1].seats.size() == 3);
}

TEST_CASE("a newcomer without a place or a plan is refused, and the job goes on") {
  Waiting job(std::nullopt, [](const Loss& loss) {
    if (loss.lost.empty()) {
      throw RuntimeFailure("no room");
    }
    return EpochPlan{"plan for two", "another"};
  });
  const auto refusal_of = [&](const JoinRequest& request) {
    TestClient client(job.address(), kCrewToken);
    try {
      client->join(request, 30_s);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  CHECK_THAT(refusal_of(TestClient::request(Rank(1))), Catch::Contains("came too late"));
  job.lose(1);
  Crew second(job.address());
  second.join({returning(2, 1, 8, 7), returning(0, 1, 8, 7)});
  meet({second.clients[0].get(), second.clients[1].get()});
  JoinRequest other = TestClient::request(Rank(1));
  other.plan_digest = "of another job";
  CHECK_THAT(refusal_of(other), Catch::Contains("the job began with the plan first"));
  CHECK_THAT(refusal_of(TestClient::request(Rank(3))), Catch::Contains("out of range"));
  CHECK_THAT(refusal_of(TestClient::request(Rank(1))), Catch::Contains("no room"));
  meet({second.clients[0].get(), second.clients[1].get()});
  CHECK(second.clients[0]->aborts() == 0);
}

TEST_CASE("a job whose last holder of parameters is lost ends") {
  Waiting job(60_s);
  job.lose(1);
  Crew second(job.address());
  std::future<void> coming = std::async(std::launch::async, [&] {
    CHECK_THROWS_WITH(second.join({TestClient::request(Rank(1))}),
                      Catch::Contains("nobody is left who has the parameters"));
  });
  job.first->clients[0].reset();
  job.first->clients[2].reset();
  coming.get();
}

}  // namespace rackrail::runtime
