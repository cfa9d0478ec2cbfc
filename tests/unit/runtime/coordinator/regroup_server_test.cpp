// Coordinator and clients when a member is lost, or in doubt, and the job goes on.
#include <catch2/catch.hpp>
#include <future>
#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"
#include "tests/unit/runtime/coordinator/test_crew.hpp"

namespace rackrail::runtime::regroup_server_test {
namespace {

using test::Crew;
using test::crew_options;
using test::kCrewToken;
using test::returning;
using test::TestClient;

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

}  // namespace rackrail::runtime::regroup_server_test
