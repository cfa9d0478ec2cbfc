// Another plan for a job in the middle, because of what its workers measured.
#include <catch2/catch.hpp>
#include <future>
#include <mutex>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"
#include "tests/unit/runtime/coordinator/test_crew.hpp"

namespace rackrail::runtime::replan_server_test {
namespace {

using test::Crew;
using test::crew_options;
using test::returning;
using test::TestClient;

}  // namespace

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

}  // namespace rackrail::runtime::replan_server_test
