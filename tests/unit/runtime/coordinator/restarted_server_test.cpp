// A coordinator that was killed and is started again, and those who come back to it.
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"
#include "tests/unit/runtime/coordinator/test_crew.hpp"

namespace rackrail::runtime::restarted_server_test {
namespace {

using test::Crew;
using test::crew_options;
using test::kCrewToken;
using test::returning;
using test::TestClient;

}  // namespace

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

}  // namespace rackrail::runtime::restarted_server_test
