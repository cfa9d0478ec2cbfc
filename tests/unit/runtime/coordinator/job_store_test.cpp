#include "runtime/coordinator/job_store.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>

#include "base/error.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::runtime::job_store_test {
namespace {

JobRecord job_record() {
  return {.identity = "identity",
          .address = {"127.0.0.1", 4711},
          .token = "secret",
          .job_options = R"({"steps": 3})"};
}

EpochRecord epoch_record(std::uint32_t epoch) {
  // A plan's binary form has zeros in it.
  return {.epoch = epoch,
          .seats = {Rank(0), Rank(2), Rank(13)},
          .since = {1, 1, epoch},
          .step = 40 + epoch,
          .plan = {.plan = std::string("plan\0of ", 8) + std::to_string(epoch), .digest = "d"}};
}

}  // namespace

TEST_CASE("a job is unfinished from its first epoch to its end") {
  const rackrail::test::TemporaryDirectory folder;
  {
    JobStore store(folder.path());
    CHECK_FALSE(store.unfinished().has_value());
    store.begin(job_record());
    CHECK_FALSE(store.unfinished().has_value());  // no worker has heard of it
    store.add(epoch_record(1));
    store.add(epoch_record(2));
  }
  JobStore store(folder.path());
  const std::optional<UnfinishedJob> found = store.unfinished();
  REQUIRE(found.has_value());
  CHECK(found->job.identity == job_record().identity);
  CHECK(found->job.address == job_record().address);
  CHECK(found->job.token == job_record().token);
  CHECK(found->job.job_options == job_record().job_options);
  CHECK(found->epoch.epoch == 2);
  CHECK(found->epoch.seats == epoch_record(2).seats);
  CHECK(found->epoch.since == epoch_record(2).since);
  CHECK(found->epoch.step == 42);
  CHECK(found->epoch.plan.plan == epoch_record(2).plan.plan);
  CHECK(found->epoch.plan.digest == "d");
  store.end();
  CHECK_FALSE(store.unfinished().has_value());
}

TEST_CASE("a new job forgets the one before") {
  const rackrail::test::TemporaryDirectory folder;
  JobStore store(folder.path());
  store.begin(job_record());
  store.add(epoch_record(5));
  store.begin(job_record());
  store.add(epoch_record(1));
  CHECK(store.unfinished()->epoch.epoch == 1);
}

TEST_CASE("what was added is there after a kill, which also gives the lock back") {
  const rackrail::test::TemporaryDirectory folder;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    JobStore store(folder.path());
    store.begin(job_record());
    store.add(epoch_record(1));
    raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const JobStore store(folder.path());
  REQUIRE(store.unfinished().has_value());
  CHECK(store.unfinished()->epoch.seats == epoch_record(1).seats);
}

TEST_CASE("two coordinators cannot run one job, and strangers cannot read its token") {
  const rackrail::test::TemporaryDirectory folder;
  const JobStore first(folder.path());
  CHECK_THROWS_WITH(JobStore(folder.path()), Catch::Contains("another process runs"));
  struct stat status = {};
  REQUIRE(stat((folder.path() / "job.sqlite3").c_str(), &status) == 0);
  CHECK((status.st_mode & 0077U) == 0);
}

TEST_CASE("what is no database is refused") {
  const rackrail::test::TemporaryDirectory folder;
  const auto file = folder.path() / "job.sqlite3";
  std::ofstream(file) << std::string(5000, 'x');
  CHECK_THROWS_AS(JobStore(folder.path()), ConfigError);
  CHECK_THROWS_WITH(JobStore(file), Catch::Contains("job.sqlite3"));  // its folder is a file
}

}  // namespace rackrail::runtime::job_store_test
