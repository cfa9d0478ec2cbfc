// Workers that come for those who were lost.
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"
#include "tests/unit/runtime/coordinator/test_crew.hpp"

namespace rackrail::runtime::newcomers_server_test {
namespace {

using test::Crew;
using test::crew_options;
using test::kCrewToken;
using test::meet;
using test::returning;
using test::TestClient;

/// A job of three whose coordinator says what it asks for.
class Waiting {
 public:
  explicit Waiting(std::optional<Duration> replacement_deadline,
                   std::function<EpochPlan(const Loss&)> on_loss = {},
                   std::function<SavedPoint()> on_nobody_left = {}) {
    CoordinatorOptions options = crew_options(3);
    options.replacement_deadline = replacement_deadline;
    options.on_nobody_left = std::move(on_nobody_left);
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

namespace {

/// Three who were not in the job before, and all whom it asked for.
void require_restart(Waiting& job, const std::string& checkpoint, std::uint32_t step) {
  Crew second(job.address());
  second.join(
      {TestClient::request(Rank(0)), TestClient::request(Rank(1)), TestClient::request(Rank(2))});
  for (const Welcome& welcome : second.welcomes) {
    CHECK(welcome.epoch == 2);
    CHECK(welcome.plan == "plan for all");
    CHECK(welcome.step == step);
    CHECK(welcome.checkpoint == checkpoint);
    CHECK(welcome.newcomers == std::vector{Rank(0), Rank(1), Rank(2)});
  }
  meet({second.clients[0].get(), second.clients[1].get(), second.clients[2].get()});
  // Now they have the parameters: whoever comes next gets them from those.
  second.clients[1].reset();
  REQUIRE(second.clients[0]->wait_for_abort().has_value());
  CHECK((*second.clients[0])->is_to_come_back());
  Crew third(job.address());
  third.join({returning(0, 2, 9, 8), TestClient::request(Rank(1)), returning(2, 2, 9, 8)});
  for (const Welcome& welcome : third.welcomes) {
    CHECK(welcome.step == 9);
    CHECK(welcome.checkpoint.empty());
    CHECK(welcome.newcomers == std::vector{Rank(1)});
  }
}

}  // namespace

TEST_CASE("a job whose last holder of parameters is lost goes on from what was saved") {
  Waiting job(60_s, {}, [] { return SavedPoint{6, "/saved/step-6"}; });
  SECTION("one after the other") {
    job.lose(1);
    job.first->clients[0].reset();
    job.first->clients[2].reset();
    require_restart(job, "/saved/step-6", 6);
  }
  SECTION("all at once") {
    job.first->clients.clear();
    require_restart(job, "/saved/step-6", 6);
  }
}

TEST_CASE("a job whose last holder is lost before anything was saved begins again") {
  Waiting job(60_s, {}, [] { return SavedPoint{}; });
  job.first->clients.clear();
  require_restart(job, "", 0);
}

TEST_CASE("newcomers who had nothing yet go on from what was saved") {
  // Two had come, and those who would have given them the parameters are lost before they did.
  Waiting job(60_s, {}, [] { return SavedPoint{6, "/saved/step-6"}; });
  job.lose(1);
  Crew second(job.address());
  second.join({returning(2, 1, 8, 7), TestClient::request(Rank(1)), returning(0, 1, 8, 7)});
  second.clients[0].reset();
  second.clients[2].reset();
  REQUIRE(second.clients[1]->wait_for_abort().has_value());
  CHECK((*second.clients[1])->is_to_come_back());
  JoinRequest nothing = returning(1, 2, 0, 0);
  nothing.returning->has_parameters = false;
  Crew third(job.address());
  third.join({TestClient::request(Rank(0)), nothing, TestClient::request(Rank(2))});
  for (const Welcome& welcome : third.welcomes) {
    CHECK(welcome.step == 6);
    CHECK(welcome.checkpoint == "/saved/step-6");
    CHECK(welcome.newcomers.size() == 3);
  }
}

TEST_CASE("where what was saved cannot be read the job ends with the reason") {
  Waiting job(60_s, {}, []() -> SavedPoint { throw RuntimeFailure("it is damaged"); });
  job.first->clients.clear();
  Crew second(job.address());
  CHECK_THROWS_WITH(second.join({TestClient::request(Rank(0)), TestClient::request(Rank(1)),
                                 TestClient::request(Rank(2))}),
                    Catch::Contains("nobody is left who has the parameters: it is damaged"));
}

}  // namespace rackrail::runtime::newcomers_server_test
