#include "base/other_load.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>

namespace rackrail::other_load_test {
namespace {

constexpr double kSeconds = 0.6;

void work_for(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end) {
  }
}

/// A child that works, and is not waited for yet.
pid_t working_child(double seconds) {
  const pid_t child = fork();
  if (child == 0) {
    work_for(seconds);
    _exit(0);
  }
  return child;
}

}  // namespace

TEST_CASE("others' work is told from that of this process and its ended children") {
  const OtherLoad others;
  const pid_t child = working_child(kSeconds);
  sleep(1);
  const double beside = others.cores();
  waitpid(child, nullptr, 0);
  work_for(kSeconds);
  // What the child did was another's until it was waited for; on a busy machine it got less.
  CHECK(beside > others.cores());
  CHECK(others.cores() >= 0);
  CHECK(others.cores() <= machine_cores());
}

TEST_CASE("a tenth of the cores is too much") {
  CHECK_FALSE(is_busy(0));
  CHECK_FALSE(is_busy(0.09 * machine_cores()));
  CHECK(is_busy(0.11 * machine_cores()));
  CHECK(other_load_text(0.84).find("0.8 of") != std::string::npos);
}

}  // namespace rackrail::other_load_test
