// Real processes that die: who notices, how soon, and what is said.
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/launch/spawn.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"

namespace rackrail::runtime::loss_test {
namespace {

using std::chrono::steady_clock;
using test::TestClient;

constexpr const char* kToken = "secret-of-the-test";

/// The process, and what it said first.
class Mortal {
 public:
  explicit Mortal(std::vector<std::string> arguments)
      : children_([this](std::size_t, std::string_view line) { said_ = line; }) {
    arguments.insert(arguments.begin(), RACKRAIL_MORTAL);
    children_.start({.words = arguments, .environment = {{kJobTokenVariable, kToken}}});
  }

  std::string wait_for_word() {
    const auto deadline = steady_clock::now() + std::chrono::seconds(20);
    while (said_.empty() && steady_clock::now() < deadline) {
      children_.wait_for(50_ms);
    }
    return said_;
  }
  pid_t pid() const { return children_.pid(0); }
  std::string name() const { return "rank 2 (pid " + std::to_string(pid()) + " on host-m)"; }

 private:
  std::string said_;
  ChildProcesses children_;
};

CoordinatorOptions options_for_three() {
  CoordinatorOptions options;
  options.token = kToken;
  options.membership.world_size = 3;
  options.membership.version = "test";
  options.heartbeat_period = 100_ms;
  return options;
}

/// Ranks 0 and 1 in this process, rank 2 a mortal one; returns what was heard of its end.
struct Heard {
  std::vector<std::string> reasons;
  std::vector<double> seconds;  ///< after the mortal one had joined
};

Heard hear_of(Mortal& mortal, const HostPort& address) {
  std::vector<std::unique_ptr<TestClient>> clients;
  std::vector<std::thread> joining;
  for (int rank = 0; rank < 2; ++rank) {
    clients.push_back(std::make_unique<TestClient>(address, kToken));
    joining.emplace_back([&client = *clients.back(), rank] { client.join(Rank(rank)); });
  }
  const bool joined = mortal.wait_for_word() == "joined";
  const auto start = steady_clock::now();
  for (std::thread& thread : joining) {
    thread.join();
  }
  REQUIRE(joined);
  Heard heard;
  for (auto& client : clients) {
    heard.reasons.push_back(client->wait_for_abort().value_or("none"));
    heard.seconds.push_back(std::chrono::duration<double>(client->aborted_at() - start).count());
    (*client)->leave(false, {heard.reasons.back(), false});
  }
  return heard;
}

}  // namespace

TEST_CASE("a killed worker is known to the others in well under a second") {
  CoordinatorServer server(options_for_three());
  Mortal mortal({"die", to_string(server.address()), "2"});
  const Heard heard = hear_of(mortal, server.address());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(heard.reasons[rank] == mortal.name() + " was lost: connection closed");
    CHECK(heard.seconds[rank] < 1.0);
  }
  const auto outcome = server.wait_for(20_s);
  REQUIRE(outcome.has_value());
  CHECK_FALSE(outcome->ok);
  CHECK(outcome->reason.line == heard.reasons[0]);
}

TEST_CASE("a worker that is stopped, its connection still open, is lost by its silence") {
  CoordinatorOptions options = options_for_three();
  options.membership.heartbeat_timeout = 1500_ms;
  options.membership.leave_grace = 200_ms;
  CoordinatorServer server(options);
  Mortal mortal({"freeze", to_string(server.address()), "2"});
  const Heard heard = hear_of(mortal, server.address());
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(heard.reasons[rank] == mortal.name() + " was lost: no heartbeat for 1.50 s");
    CHECK(heard.seconds[rank] > 1.0);
    CHECK(heard.seconds[rank] < 4.0);
  }
  CHECK(server.wait_for(20_s).has_value());  // although one never leaves
}

TEST_CASE("workers notice that the coordinator was killed") {
  Mortal coordinator({"coordinate", "1"});
  const HostPort address = parse_host_port(coordinator.wait_for_word(), "the word");
  TestClient client(address, kToken);
  client.join(Rank(0));
  const auto start = steady_clock::now();
  kill(coordinator.pid(), SIGKILL);
  CHECK(client.wait_for_abort() ==
        "the coordinator at " + to_string(address) + " was lost: connection closed");
  CHECK(std::chrono::duration<double>(client.aborted_at() - start).count() < 1.0);
  CHECK_FALSE(client->was_told_to_abort());
  client->leave(false);  // returns, although nobody hears it
  CHECK_FALSE(client->coordinator_knows());
}

TEST_CASE("workers notice that the coordinator is silent", "[slow]") {
  Mortal coordinator({"coordinate", "1"});
  const HostPort address = parse_host_port(coordinator.wait_for_word(), "the word");
  TestClient client(address, kToken);
  client.join(Rank(0));
  kill(coordinator.pid(), SIGSTOP);
  CHECK(client.wait_for_abort() ==
        "the coordinator at " + to_string(address) + " was lost: no answer for 3.00 s");
}

}  // namespace rackrail::runtime::loss_test
