#include "runtime/launch/spawn.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "base/error.hpp"

namespace rackrail::runtime::spawn_test {
namespace {

using std::chrono::steady_clock;

struct Lines {
  std::vector<std::pair<std::size_t, std::string>> all;
  ChildProcesses::LineHandler handler() {
    return [this](std::size_t child, std::string_view line) { all.emplace_back(child, line); };
  }
};

ChildCommand shell(const std::string& script) {
  return {.words = {"/bin/sh", "-c", script}, .environment = {}};
}

std::vector<ChildEnd> wait_for_all(ChildProcesses& children) {
  std::vector<ChildEnd> ends;
  const auto deadline = steady_clock::now() + std::chrono::seconds(20);
  while (children.running() > 0 && steady_clock::now() < deadline) {
    for (ChildEnd& end : children.wait_for(200_ms)) {
      ends.push_back(std::move(end));
    }
  }
  return ends;
}

/// Gone, or a zombie that init has not collected yet.
bool is_gone(pid_t pid) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  while (steady_clock::now() < deadline) {
    if (kill(pid, 0) != 0 && errno == ESRCH) {
      return true;
    }
    FILE* file = fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "re");
    if (file == nullptr) {
      return true;
    }
    char state = '?';
    const int read = fscanf(file, "%*d %*s %c", &state);
    fclose(file);
    if (read == 1 && (state == 'Z' || state == 'X')) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

TEST_CASE("what children write comes in lines, from both streams") {
  Lines lines;
  ChildProcesses children(lines.handler());
  children.start(shell("echo one; echo two >&2; printf three"));
  const auto ends = wait_for_all(children);
  REQUIRE(ends.size() == 1);
  CHECK(ends[0].ok());
  CHECK(ends[0].last_line == "three");
  using Line = std::pair<std::size_t, std::string>;
  CHECK(lines.all == std::vector<Line>{{0, "one"}, {0, "two"}, {0, "three"}});
}

TEST_CASE("children have the added environment, an empty input and a group of their own") {
  Lines lines;
  ChildProcesses children(lines.handler());
  ChildCommand command = shell("echo $ADDED; cat; ps -o pgid= -p $$ | tr -d ' '; echo $$");
  command.environment = {{"ADDED", "with spaces"}};
  children.start(command);
  wait_for_all(children);
  REQUIRE(lines.all.size() == 3);
  CHECK(lines.all[0].second == "with spaces");
  CHECK(lines.all[1].second == lines.all[2].second);
}

TEST_CASE("how a child ended is known, with its processor time") {
  Lines lines;
  ChildProcesses children(lines.handler());
  children.start(shell("exit 7"));
  children.start(shell("kill -9 $$"));
  children.start(shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"));
  auto ends = wait_for_all(children);
  REQUIRE(ends.size() == 3);
  std::sort(ends.begin(), ends.end(),
            [](const ChildEnd& a, const ChildEnd& b) { return a.child < b.child; });
  CHECK(describe(ends[0]) == "exited with status 7");
  CHECK(ends[0].status == 7);
  CHECK(describe(ends[1]) == "was killed by signal 9 (Killed)");
  CHECK(ends[1].status == 137);
  CHECK(ends[2].ok());
  CHECK(ends[2].cpu_time > 10_ms);
}

TEST_CASE("a program that is not there is said at once") {
  ChildProcesses children([](std::size_t, std::string_view) {});
  CHECK_THROWS_WITH(children.start({.words = {"/no/such/program"}, .environment = {}}),
                    Catch::Contains("cannot start /no/such/program: No such file"));
  CHECK(children.running() == 0);
}

TEST_CASE("children end on request, and those that will not are killed") {
  Lines lines;
  ChildProcesses children(lines.handler());
  children.start({.words = {"/bin/sleep", "1000"}, .environment = {}});
  children.start(shell("trap '' TERM; echo ready; while :; do sleep 0.05; done"));
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  while (lines.all.empty() && steady_clock::now() < deadline) {
    children.wait_for(50_ms);
  }
  const auto start = steady_clock::now();
  auto ends = children.terminate(300_ms);
  CHECK(steady_clock::now() - start < std::chrono::seconds(5));
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].child == 0);
  CHECK(ends[0].signal == SIGTERM);
  CHECK(ends[1].child == 1);
  CHECK(ends[1].signal == SIGKILL);
  CHECK(children.running() == 0);
}

TEST_CASE("children end with the object that started them") {
  pid_t pid = 0;
  {
    ChildProcesses children([](std::size_t, std::string_view) {});
    children.start({.words = {"/bin/sleep", "1000"}, .environment = {}});
    pid = children.pid(0);
    CHECK(kill(pid, 0) == 0);
  }
  CHECK(is_gone(pid));
}

TEST_CASE("no child outlives its parent, not even one that is killed") {
  Lines lines;
  ChildProcesses parents(lines.handler());
  parents.start({.words = {RACKRAIL_PARENT}, .environment = {}});
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  while (lines.all.empty() && steady_clock::now() < deadline) {
    parents.wait_for(50_ms);
  }
  REQUIRE(lines.all.size() == 1);
  std::istringstream said(lines.all[0].second);
  pid_t first = 0;
  pid_t second = 0;
  said >> first >> second;
  REQUIRE(first > 0);
  REQUIRE(second > 0);
  kill(parents.pid(0), SIGKILL);
  CHECK(is_gone(first));
  CHECK(is_gone(second));
}

TEST_CASE("waiting ends when the other descriptor becomes readable") {
  int ends[2] = {-1, -1};
  REQUIRE(pipe(ends) == 0);
  ChildProcesses children([](std::size_t, std::string_view) {});
  children.start({.words = {"/bin/sleep", "1000"}, .environment = {}});
  ssize_t written = 0;
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    written = write(ends[1], "x", 1);
  });
  const auto start = steady_clock::now();
  CHECK(children.wait_for(20_s, ends[0]).empty());
  CHECK(steady_clock::now() - start < std::chrono::seconds(10));
  writer.join();
  CHECK(written == 1);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace rackrail::runtime::spawn_test
