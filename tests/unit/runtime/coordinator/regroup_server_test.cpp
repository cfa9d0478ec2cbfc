// Coordinator and clients when a member, or the coordinator itself, is lost and the job goes on.
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <mutex>
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
                                  .step = 20,
                                  .plan = {.plan = "plan of epoch 3", .digest = "third"}};
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

}  // namespace rackrail::runtime
