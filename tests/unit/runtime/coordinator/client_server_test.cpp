#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "runtime/coordinator/client.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"

namespace rackrail::runtime::client_server_test {
namespace {

using test::TestClient;

constexpr const char* kToken = "secret-of-the-test";

CoordinatorOptions options_for(std::size_t workers) {
  CoordinatorOptions options;
  options.token = kToken;
  options.membership.world_size = workers;
  options.membership.version = "test";
  options.membership.plan_digest = "digest-of-the-plan";
  options.membership.rendezvous_deadline = 30_s;
  options.membership.heartbeat_timeout = 10_s;  // this machine may be busy
  options.heartbeat_period = 50_ms;
  options.plan = std::string("plan\0with any bytes\xff", 21);
  options.job_options = R"({"steps": 3})";
  return options;
}

/// Runs `work(rank)` on a thread per rank. Catch2's macros are for one thread, so `work` collects
/// and the test looks afterwards.
void on_threads(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < count; ++rank) {
    threads.emplace_back(work, rank);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("four workers join, report and finish") {
  constexpr std::size_t kWorkers = 4;
  CoordinatorOptions options = options_for(kWorkers);
  std::mutex mutex;
  std::vector<std::pair<std::uint32_t, std::vector<std::vector<CheckpointFile>>>> checkpoints;
  JobProgress last_progress;
  options.on_checkpoint = [&](std::uint32_t step, const auto& files) {
    const std::lock_guard lock(mutex);
    checkpoints.emplace_back(step, files);
  };
  options.on_progress = [&](const JobProgress& progress) {
    const std::lock_guard lock(mutex);
    last_progress = progress;
  };
  CoordinatorServer server(options);
  CHECK(server.address().host == "127.0.0.1");
  CHECK(server.address().port != 0);
  CHECK_FALSE(server.wait_for(Duration()).has_value());

  std::vector<Welcome> welcomes(kWorkers);
  std::vector<std::string> errors(kWorkers);
  std::atomic<std::size_t> still_waiting = 0;
  on_threads(kWorkers, [&](std::size_t rank) {
    errors[rank] = message_of([&] {
      TestClient client(server.address(), kToken);
      welcomes[rank] = client.join(Rank(rank));
      client->set_progress({static_cast<std::uint32_t>(7 + rank), 1.5, 3_ms});
      const std::string name = "rank-" + std::to_string(rank);
      client->report_checkpoint(5, {{name, "digest-" + name, Bytes(100 + std::int64_t(rank))}});
      if (rank == 0) {  // late: nobody may finish before all have reported
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        still_waiting = 1;
      }
      client->report_result("result of " + name);
      client->wait_until_finished();
      if (still_waiting == 0) {
        throw RuntimeFailure("finished before rank 0 reported");
      }
      client->leave(true);
      if (client.aborts() != 0) {
        throw RuntimeFailure("aborted: " + *client->abort_reason());
      }
    });
  });
  CHECK(errors == std::vector<std::string>(kWorkers));
  CHECK(server.has_started());

  const auto outcome = server.wait_for(20_s);
  REQUIRE(outcome.has_value());
  CHECK(outcome->ok);
  CHECK(outcome->epochs == 1);
  REQUIRE(outcome->results.size() == kWorkers);
  for (std::size_t rank = 0; rank < kWorkers; ++rank) {
    CHECK(outcome->results[rank] == "result of rank-" + std::to_string(rank));
    CHECK(welcomes[rank].rank == Rank(rank));
    CHECK(welcomes[rank].world_size == kWorkers);
    CHECK(welcomes[rank].epoch == 1);
    CHECK(welcomes[rank].plan == options.plan);
    CHECK(welcomes[rank].job_options == options.job_options);
    REQUIRE(welcomes[rank].addresses.size() == kWorkers);
    for (std::size_t peer = 0; peer < kWorkers; ++peer) {
      CHECK(welcomes[rank].addresses[peer] ==
            std::vector<std::byte>{std::byte{0x42}, std::byte(peer)});
    }
  }
  const std::lock_guard lock(mutex);
  REQUIRE(checkpoints.size() == 1);
  CHECK(checkpoints[0].first == 5);
  CHECK(checkpoints[0].second.at(2).at(0).sha256 == "digest-rank-2");
  CHECK(checkpoints[0].second.at(3).at(0).size == 103_B);
  CHECK(last_progress.joined == kWorkers);
  CHECK(last_progress.step == 7);
  CHECK(last_progress.step_time == 3_ms);
}

TEST_CASE("an exchange gives every worker the parts of all, and nobody goes on before the last") {
  constexpr std::size_t kWorkers = 3;
  constexpr std::size_t kRounds = 20;
  CoordinatorServer server(options_for(kWorkers));
  std::atomic<std::size_t> arrived = 0;
  std::atomic<std::size_t> too_soon = 0;
  std::vector<std::vector<std::vector<std::string>>> seen(kWorkers);
  std::vector<char> was_early(kWorkers, 0);
  on_threads(kWorkers, [&](std::size_t rank) {
    TestClient client(server.address(), kToken);
    client.join(Rank(rank));
    for (std::size_t round = 0; round < kRounds; ++round) {
      if (rank == round % kWorkers) {  // the last one is another in each round
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      ++arrived;
      const std::string bytes(1, static_cast<char>(round));
      seen[rank].push_back(client->exchange(bytes + std::to_string(rank)));
      too_soon += arrived < (round + 1) * kWorkers ? 1 : 0;
    }
    client->report_result("done");
    was_early[rank] = client->wait_until_finished(30_s) ? 0 : 1;
    client->leave(true);
  });
  CHECK(too_soon == 0);
  CHECK(was_early == std::vector<char>(kWorkers, 0));
  for (const auto& rounds : seen) {
    REQUIRE(rounds.size() == kRounds);
    for (std::size_t round = 0; round < kRounds; ++round) {
      const std::string bytes(1, static_cast<char>(round));
      CHECK(rounds[round] == std::vector<std::string>{bytes + "0", bytes + "1", bytes + "2"});
    }
  }
}

TEST_CASE("waiting for the others' results ends at its limit") {
  CoordinatorServer server(options_for(2));
  std::atomic<int> gave_up = 0;
  std::atomic<bool> may_leave = false;
  on_threads(2, [&](std::size_t rank) {
    TestClient client(server.address(), kToken);
    client.join(Rank(rank));
    if (rank == 0) {
      client->report_result("done");
      gave_up += client->wait_until_finished(50_ms) ? 0 : 1;
      may_leave = true;
    }
    while (!may_leave) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    client->leave(true);
  });
  CHECK(gave_up == 1);
}

TEST_CASE("workers without a rank get one each") {
  CoordinatorServer server(options_for(3));
  std::vector<int> seen(3, 0);
  std::mutex mutex;
  on_threads(3, [&](std::size_t) {
    TestClient client(server.address(), kToken);
    const Welcome welcome = client.join(std::nullopt);
    {
      const std::lock_guard lock(mutex);
      ++seen.at(welcome.rank.index());
    }
    client->leave(false, {"the test is over", false});
  });
  CHECK(seen == std::vector<int>{1, 1, 1});
}

TEST_CASE("a worker may come before the coordinator") {
  HostPort address;
  {
    const CoordinatorServer probe(options_for(1));  // finds a free port
    address = probe.address();
  }
  std::string error;
  std::thread early([&] {
    error = message_of([&] {
      TestClient client(address, kToken);
      client.join(Rank(0));
      client->report_result("r");
      client->wait_until_finished();
      client->leave(true);
    });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CoordinatorOptions options = options_for(1);
  options.listen = address;
  CoordinatorServer server(options);
  early.join();
  CHECK(error.empty());
  const auto outcome = server.wait_for(20_s);
  REQUIRE(outcome.has_value());
  CHECK(outcome->ok);
}

TEST_CASE("the rendezvous deadline tells those who wait who is missing") {
  CoordinatorOptions options = options_for(3);
  options.membership.rendezvous_deadline = 500_ms;
  CoordinatorServer server(options);
  std::vector<std::string> errors(2);
  on_threads(2, [&](std::size_t rank) {
    errors[rank] = message_of([&] {
      TestClient client(server.address(), kToken);
      client.join(Rank(rank * 2));
    });
  });
  CHECK(errors[0] == "2 of 3 workers came within 500 ms; missing: rank 1");
  CHECK(errors[1] == errors[0]);
  const auto outcome = server.wait_for(20_s);
  REQUIRE(outcome.has_value());
  CHECK_FALSE(outcome->ok);
  CHECK(outcome->reason.line == errors[0]);
}

TEST_CASE("a worker gives up when nobody answers") {
  HostPort address;
  {
    const CoordinatorServer probe(options_for(1));
    address = probe.address();
  }
  TestClient client(address, kToken);
  CHECK(message_of([&] { client.join(Rank(0), 300_ms); }) ==
        "no coordinator answered within 300 ms: at " + to_string(address));
}

TEST_CASE("a wrong or missing token is refused in one line, and the job goes on") {
  CoordinatorServer server(options_for(1));
  for (const char* token : {"wrong", ""}) {
    TestClient stranger(server.address(), token);
    try {
      stranger.join(Rank(0));
      FAIL("accepted");
    } catch (const ConfigError& error) {
      CHECK(error.context().where == "RACKRAIL_JOB_TOKEN");
      CHECK_THAT(error.what(), Catch::Contains("expected the token of the job"));
      CHECK_THAT(error.what(), !Catch::Contains("\n") && !Catch::Contains(kToken));
    }
  }
  TestClient member(server.address(), kToken);
  CHECK(member.join(Rank(0)).rank == Rank(0));
  CHECK_FALSE(member->coordinator_knows());
  member->leave(false, {"the test is over", false});
  CHECK(member->coordinator_knows());
}

TEST_CASE("a worker that does not fit the job is refused as bad input") {
  CoordinatorServer server(options_for(2));
  const auto refused = [&](const std::function<void(JoinRequest&)>& change) {
    JoinRequest request = TestClient::request(Rank(0));
    change(request);
    TestClient client(server.address(), kToken);
    try {
      client->join(request, 20_s);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK_THAT(refused([](JoinRequest& r) { r.plan_digest = "another"; }),
             Catch::Contains("has the plan another, the job runs the plan digest-of-th"));
  CHECK_THAT(refused([](JoinRequest& r) { r.version = "0.0"; }), Catch::Contains("runs rackrail"));
  CHECK_THAT(refused([](JoinRequest& r) { r.rank = Rank(2); }), Catch::Contains("out of range"));
  CHECK_THAT(refused([](JoinRequest& r) { r.world_size = 8; }), Catch::Contains("expects 8"));
  CHECK_THAT(refused([](JoinRequest& r) { r.address.resize(70'000); }),
             Catch::Contains("a transport address of 70000 bytes"));
}

TEST_CASE("a job that is stopped tells everybody the reason, once") {
  CoordinatorServer server(options_for(2));
  std::vector<std::string> reasons(2);
  std::vector<int> aborts(2);
  std::atomic<int> joined = 0;
  std::thread stopper([&] {
    while (joined < 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    server.stop("interrupted by SIGINT");
    server.stop("a second reason");
  });
  on_threads(2, [&](std::size_t rank) {
    TestClient client(server.address(), kToken);
    client.join(Rank(rank));
    ++joined;
    reasons[rank] = client.wait_for_abort().value_or("none");
    client->leave(false, {reasons[rank], false});
    aborts[rank] = client.aborts();
  });
  stopper.join();
  CHECK(reasons == std::vector<std::string>(2, "interrupted by SIGINT"));
  CHECK(aborts == std::vector<int>{1, 1});
  const auto outcome = server.wait_for(20_s);
  REQUIRE(outcome.has_value());
  CHECK(outcome->reason.line == "interrupted by SIGINT");
}

TEST_CASE("a worker that fails ends the others' waiting with its reason") {
  CoordinatorServer server(options_for(2));
  std::vector<std::string> errors(2);
  on_threads(2, [&](std::size_t rank) {
    errors[rank] = message_of([&] {
      TestClient client(server.address(), kToken);
      client.join(Rank(rank));
      if (rank == 1) {
        client->leave(false, {"data.csv: found nothing", true});
        return;
      }
      client->report_result("done");
      client->wait_until_finished();
    });
  });
  CHECK(errors[0] == "rank 1 (pid 1001 on host-t) failed: data.csv: found nothing");
  const auto outcome = server.wait_for(20_s);
  REQUIRE(outcome.has_value());
  CHECK(outcome->reason.line == errors[0]);
  CHECK(outcome->reason.bad_input);
}

TEST_CASE("a transport error without any other sign ends the job with what was seen") {
  CoordinatorServer server(options_for(2));
  std::vector<std::string> reasons(2);
  on_threads(2, [&](std::size_t rank) {
    TestClient client(server.address(), kToken);
    client.join(Rank(rank));
    reasons[rank] =
        rank == 0 ? client->report_transport_error(Rank(1), "Connection\nreset").value_or("none")
                  : client.wait_for_abort().value_or("none");
    client->leave(false, {reasons[rank], false});
  });
  CHECK(reasons[0] ==
        "rank 1 (pid 1001 on host-t) was lost: rank 0 cannot reach it: Connection reset");
  CHECK(reasons[1] == reasons[0]);
}

TEST_CASE("a manifest that cannot be written fails the job") {
  CoordinatorOptions options = options_for(1);
  options.on_checkpoint = [](std::uint32_t, const auto&) {
    throw ConfigError("/full/manifest.json: no space left");
  };
  CoordinatorServer server(options);
  TestClient client(server.address(), kToken);
  client.join(Rank(0));
  SECTION("in the middle") {
    client->report_checkpoint(5, {});
    CHECK(client.wait_for_abort() == "/full/manifest.json: no space left");
    client->leave(false);
  }
  SECTION("after the last step") {
    client->report_checkpoint(5, {});
    message_of([&] {
      client->report_result("r");
      client->wait_until_finished();
    });
    client->leave(true);
  }
  const auto outcome = server.wait_for(20_s);
  REQUIRE(outcome.has_value());
  CHECK_FALSE(outcome->ok);
  CHECK(outcome->reason.line == "/full/manifest.json: no space left");
  CHECK(outcome->reason.bad_input);
}

TEST_CASE("a coordinator that goes tells its workers") {
  auto server = std::make_unique<CoordinatorServer>(options_for(1));
  TestClient client(server->address(), kToken);
  client.join(Rank(0));
  server.reset();
  CHECK(client.wait_for_abort() == "the coordinator was shut down");
  CHECK(client.aborts() == 1);
  CHECK(client->was_told_to_abort());
  CHECK(client->coordinator_knows());
}

TEST_CASE("two coordinators never share a port") {
  const CoordinatorServer first(options_for(1));
  CoordinatorOptions options = options_for(1);
  options.listen = first.address();
  CHECK_THAT(message_of([&] { CoordinatorServer second(options); }),
             Catch::Contains("cannot listen at " + to_string(first.address())));
}

TEST_CASE("a coordinator that strangers can reach needs a token") {
  CoordinatorOptions options = options_for(1);
  options.token.clear();
  options.listen.host = "0.0.0.0";
  try {
    CoordinatorServer server(options);
    FAIL("started");
  } catch (const ConfigError& error) {
    CHECK(error.context().where == "RACKRAIL_JOB_TOKEN");
  }
  options.listen.host = "127.0.0.1";
  CHECK_NOTHROW(CoordinatorServer(options));
}

}  // namespace rackrail::runtime::client_server_test
