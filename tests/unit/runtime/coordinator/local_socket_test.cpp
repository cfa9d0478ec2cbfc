#include "runtime/coordinator/local_socket.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "base/error.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"

namespace rackrail::runtime::local_socket_test {

namespace fs = std::filesystem;
using test::TestClient;

TEST_CASE("all who say the same name meet at the same place, others elsewhere") {
  CHECK(local_meeting("job 1") == local_meeting("job 1"));
  CHECK_FALSE(local_meeting("job 1") == local_meeting("job 2"));
  CHECK(is_local_meeting(local_meeting("job 1")));
  CHECK(is_loopback(local_meeting("job 1").host));
  CHECK_FALSE(is_local_meeting({"unix", 5}));
  const HostPort meeting = local_meeting("job 1");
  CHECK(parse_host_port(to_string(meeting), "where") == meeting);
  CHECK(grpc_address({"host", 5}) == "host:5");
}

TEST_CASE("nobody else can enter the folder where a user's jobs meet") {
  const fs::path folder = local_socket(local_meeting("job 1")).parent_path();
  struct stat found {};
  REQUIRE(lstat(folder.c_str(), &found) == 0);
  CHECK(S_ISDIR(found.st_mode));
  CHECK(found.st_uid == geteuid());
  CHECK((found.st_mode & 0077) == 0);
}

/// Whether a process that is forked now can hold the place.
bool can_be_held(const HostPort& meeting) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      const MeetingClaim claim(meeting);
    } catch (const RuntimeFailure&) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_CASE("a meeting place has one job at a time") {
  const HostPort meeting = local_meeting("another job of the test " + std::to_string(getpid()));
  {
    const MeetingClaim claim(meeting);
    CHECK_FALSE(can_be_held(meeting));
  }
  CHECK(can_be_held(meeting));
}

TEST_CASE("workers of one user join without a token over a socket of his own") {
  CoordinatorOptions options;
  options.listen = local_meeting("job of the test " + std::to_string(getpid()));
  options.membership.world_size = 2;
  options.membership.version = "test";
  options.membership.plan_digest = "digest-of-the-plan";
  options.membership.rendezvous_deadline = 30_s;
  options.membership.heartbeat_timeout = 10_s;
  options.heartbeat_period = 50_ms;
  const fs::path socket = local_socket(options.listen);
  {
    CoordinatorServer server(options);
    CHECK(fs::is_socket(socket));
    TestClient first(options.listen, "");
    TestClient second(options.listen, "");
    std::thread other([&] { second.join(Rank(1)); });
    CHECK(first.join(Rank(0)).transport_key != 0);
    other.join();
  }
  CHECK_FALSE(fs::exists(socket));
  CoordinatorServer again(options);  // what a job that ended has left is in nobody's way
}

}  // namespace rackrail::runtime::local_socket_test
