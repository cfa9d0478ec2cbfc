// Jobs whose processes somebody else started.
#include <catch2/catch.hpp>
#include <map>

#include "base/file.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/launch/spawn.hpp"
#include "runtime/transport.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/runtime/launch/test_job.hpp"

namespace rackrail::runtime::launched_job_test {
namespace {

HostPort free_port() {
  const CoordinatorServer probe({});
  return probe.address();
}

struct Ended {
  std::map<std::size_t, std::string> last_line;
  std::map<std::size_t, int> status;
};

/// Two processes with the given variables and plans, ended.
Ended run_two(const std::string& training_file, const std::array<std::string, 2>& plans,
              const std::function<std::map<std::string, std::string>(int rank)>& environment) {
  ChildProcesses children([](std::size_t, std::string_view) {});
  for (int rank = 0; rank < 2; ++rank) {
    children.start({.words = {RACKRAIL_SCRIPTED_WORKER, "launched",
                              plans[static_cast<std::size_t>(rank)], training_file},
                    .environment = environment(rank)});
  }
  Ended ended;
  while (children.running() > 0) {
    for (const ChildEnd& end : children.wait_for(100_ms)) {
      ended.last_line[end.child] = end.last_line;
      ended.status[end.child] = end.status;
    }
  }
  return ended;
}

}  // namespace

TEST_CASE("processes that torchrun started train together, and rank 0 knows the whole job") {
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name == "ucx" && kind.unavailable) {
      RACKRAIL_SKIP(*kind.unavailable);
    }
  }
  const rackrail::test::TemporaryDirectory folder;
  const std::string plan = folder.path() / "plan.bin";
  const std::string training = folder.path() / "training.yaml";
  plan::save_plan(test::make_plan(2), plan);
  std::string text = test::training_text(8, 0);
  text.replace(text.find("../data"), 7, rackrail::test::source_dir() / "configs/data");
  write_file_atomically(training, text);

  const HostPort port = free_port();
  const auto torchrun = [&](int rank) {
    return std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                              {"WORLD_SIZE", "2"},
                                              {"LOCAL_RANK", std::to_string(rank)},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", std::to_string(port.port - 1)},
                                              {"RACKRAIL_JOB_TOKEN", "secret-of-the-test"}};
  };
  SECTION("with the same plan") {
    const Ended ended = run_two(training, {plan, plan}, torchrun);
    CHECK(ended.last_line.at(0) == "ok leader 2");
    CHECK(ended.last_line.at(1) == "ok other 1");
    CHECK(ended.status.at(0) == 0);
    CHECK(ended.status.at(1) == 0);
  }
  SECTION("but not on the same terms") {
    // The other plan is as good, but another: its worker is refused, and the job does not begin.
    plan::Plan other = test::make_plan(2);
    other.name = "another";
    const std::string other_plan = folder.path() / "other.bin";
    plan::save_plan(other, other_plan);
    ChildProcesses children([](std::size_t, std::string_view) {});
    children.start({.words = {RACKRAIL_SCRIPTED_WORKER, "launched", plan, training},
                    .environment = torchrun(0)});
    children.start({.words = {RACKRAIL_SCRIPTED_WORKER, "launched", other_plan, training},
                    .environment = torchrun(1)});
    std::vector<ChildEnd> ends;
    while (ends.empty()) {
      ends = children.wait_for(100_ms);
    }
    CHECK(ends[0].child == 1);
    CHECK(ends[0].status == 2);
    CHECK_THAT(ends[0].last_line, Catch::Contains("the job runs the plan"));
  }
}

}  // namespace rackrail::runtime::launched_job_test
