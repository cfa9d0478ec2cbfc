// Whole jobs of real processes on this machine.
#include "runtime/launch/job.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/inquiry.hpp"
#include "runtime/transport.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/runtime/launch/test_job.hpp"

namespace rackrail::runtime::job_test {
namespace {

using std::chrono::steady_clock;

/// Why workers on this machine cannot train, if so.
std::string no_transport() {
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name == "ucx" && kind.unavailable) {
      return *kind.unavailable;
    }
  }
  return "";
}

/// What the workers wrote, by rank.
class Listener {
 public:
  void attach(JobOptions& options) {
    options.on_worker_line = [this](Rank rank, std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_[rank.index()].emplace_back(line);
    };
  }
  std::vector<std::string> lines(std::size_t rank) {
    const std::lock_guard lock(mutex_);
    return lines_[rank];
  }
  /// Of a worker that trains; 0 before it said so.
  pid_t pid(std::size_t rank) {
    const std::vector<std::string> said = lines(rank);
    return said.empty() ? 0 : std::stoi(said.front().substr(4));
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::string>> lines_;
};

}  // namespace

TEST_CASE("what workers report is the job's result") {
  JobOptions options = test::make_options("report");
  Listener listener;
  listener.attach(options);
  std::atomic<std::size_t> joined = 0;
  options.on_progress = [&](const JobProgress& progress) { joined = progress.joined; };
  const JobResult result = run_local_job(test::make_plan(3), options);
  CHECK(result.reason.empty());
  CHECK(result.ok);
  CHECK(result.exit_status == 0);
  CHECK(result.is_leader);
  CHECK(result.membership_epochs == 1);
  REQUIRE(result.workers.size() == 3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(result.workers[rank].rank == Rank(rank));
    CHECK(result.workers[rank].steps == 8);
    CHECK(listener.lines(rank) == std::vector<std::string>{"joined"});
  }
  CHECK(joined == 3);
}

TEST_CASE("a worker that ends before it joined ends the job with its last words") {
  const JobResult result = run_local_job(test::make_plan(2), test::make_options("crash-early"));
  CHECK_FALSE(result.ok);
  CHECK(result.exit_status == 2);
  CHECK_THAT(result.reason, Catch::StartsWith("rank 1 (pid ") &&
                                Catch::EndsWith("exited with status 2 before all workers had come: "
                                                "data.csv: found nothing"));
}

TEST_CASE("a killed worker ends the job, and what killed it is said") {
  const auto start = steady_clock::now();
  const JobResult result = run_local_job(test::make_plan(3), test::make_options("crash-late"));
  CHECK(steady_clock::now() - start < std::chrono::seconds(5));
  CHECK_FALSE(result.ok);
  CHECK(result.exit_status == 1);
  CHECK_THAT(result.reason,
             Catch::StartsWith("rank 1 (pid ") &&
                 Catch::EndsWith(" on host-s) was lost: connection closed; its process was killed "
                                 "by signal 9 (Killed)"));
}

TEST_CASE("an interrupted job ends in order, and no worker stays, however stubborn") {
  JobOptions options = test::make_options("linger");
  options.stop_grace = 300_ms;
  Listener listener;
  listener.attach(options);
  std::thread interrupter([&] {
    const auto deadline = steady_clock::now() + std::chrono::seconds(30);
    while ((listener.lines(0).empty() || listener.lines(1).empty()) &&
           steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(getpid(), SIGINT);
  });
  const JobResult result = run_local_job(test::make_plan(2), options);
  interrupter.join();
  CHECK_FALSE(result.ok);
  CHECK(result.reason == "interrupted by SIGINT");
  CHECK(result.exit_status == 128 + SIGINT);
}

TEST_CASE("bad input is said before any worker starts") {
  JobOptions options = test::make_options("no such script");
  options.training = "name: [";
  CHECK_THROWS_AS(run_local_job(test::make_plan(2), options), ConfigError);
  options = test::make_options("no such script");
  options.resume = true;
  CHECK_THROWS_WITH(run_local_job(test::make_plan(2), options), Catch::Contains("resume"));
  options = test::make_options("no such script");
  options.worker_command = {"/no/such/program"};
  CHECK_THROWS_WITH(run_local_job(test::make_plan(2), options),
                    Catch::Contains("cannot start /no/such/program"));
}

TEST_CASE("workers train a model together") {
  if (const std::string reason = no_transport(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  JobOptions options = test::make_options("train", 12);
  options.timeline_step = 10;
  const JobResult result = run_local_job(test::make_plan(3), options);
  CHECK(result.reason.empty());
  REQUIRE(result.ok);
  REQUIRE(result.workers.size() == 3);
  for (const WorkerReport& worker : result.workers) {
    CHECK(worker.steps == 12);
    CHECK(worker.losses.size() == 12);
    CHECK(worker.parameters_digest == result.workers[0].parameters_digest);
    CHECK(worker.final_loss == worker.losses.back());
    CHECK(worker.step_time > Duration());
    CHECK(worker.cpu_time > Duration());
    CHECK(worker.transport == "ucx");
    CHECK_FALSE(worker.timeline.empty());
  }
  CHECK(result.workers[0].final_accuracy.has_value());
  // (64 · 32 + 32 + 32 · 10 + 10) gradients of 4 bytes, 12 times, from rank 1 to rank 0.
  const Bytes expected((64 * 32 + 32 + 32 * 10 + 10) * 4 * 12);
  CHECK(result.workers[1].bytes_by_pair.at({Rank(1), Rank(0)}) == expected);
  CHECK(result.workers[0].bytes_by_pair.at({Rank(0), Rank(2)}) == expected);
  CHECK(result.workers[0].bytes_sent == 2 * expected);
}

TEST_CASE("all workers measure their steps and take up another plan in the middle") {
  if (const std::string reason = no_transport(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  constexpr std::uint32_t kSteps = 400;
  plan::Plan better = test::make_plan(3);
  better.batch.local_batch = {24, 16, 8};
  JobOptions options = test::make_options("train", kSteps);
  std::map<Rank, StepMeasurement> latest;
  std::optional<std::uint32_t> asked;
  options.on_measured = [&](const StepMeasurement& step) -> std::optional<JobOptions::BetterPlan> {
    latest[step.rank] = step;
    if (asked || step.step < 5) {
      return std::nullopt;
    }
    asked = step.step;
    return JobOptions::BetterPlan{"because", better};
  };
  const JobResult result = run_local_job(test::make_plan(3), options);
  CHECK(result.reason.empty());
  REQUIRE(result.ok);
  REQUIRE(asked.has_value());
  CHECK(result.membership_epochs == 2);
  REQUIRE(result.epochs.size() == 1);
  CHECK(result.epochs[0].is_change);
  CHECK(result.epochs[0].reason == "because");
  CHECK(result.epochs[0].lost.empty());
  CHECK(result.epochs[0].seats.size() == 3);
  CHECK(result.epochs[0].step + 1 >= *asked);
  for (const WorkerReport& worker : result.workers) {
    CHECK(worker.steps == kSteps);
    CHECK(worker.losses.size() == kSteps);
    CHECK(worker.parameters_digest == result.workers[0].parameters_digest);
  }
  // Of a step by the second plan; rank 0 gets the gradients of the others.
  REQUIRE(latest.size() == 3);
  CHECK(latest[Rank(0)].samples == 24);
  CHECK(latest[Rank(2)].samples == 8);
  CHECK(latest[Rank(0)].received.size() == 2);
  CHECK(latest[Rank(1)].received.size() == 1);
  for (const auto& [rank, step] : latest) {
    CHECK(step.step_time > Duration());
    CHECK(step.compute_time > Duration());
    CHECK(step.compute_time <= step.step_time);
  }
}

TEST_CASE("who has the job's token sees how it goes and may ask for another plan") {
  if (const std::string reason = no_transport(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  constexpr std::uint32_t kSteps = 400;
  const rackrail::test::TemporaryDirectory folder;
  plan::Plan better = test::make_plan(3);
  better.batch.local_batch = {24, 16, 8};
  JobOptions options = test::make_options("train", kSteps);
  options.token_file = (folder.path() / "token").string();
  write_file_atomically(options.token_file, "a-token-of-this-test\n");
  std::filesystem::permissions(options.token_file, std::filesystem::perms::owner_read);
  Inquirer asking{.coordinator = {}, .token = "a-token-of-this-test", .token_source = {}};
  options.on_listening = [&](const HostPort& address) { asking.coordinator = address; };
  options.on_replan = [&] {
    return JobOptions::Offer{.reason = "because somebody asked",
                             .plan = better,
                             .kept_step_time = 3_ms,
                             .new_step_time = 2_ms};
  };
  JobStatus status;
  ReplanAnswer answer;
  std::thread asker;
  std::set<Rank> measured;
  options.on_measured = [&](const StepMeasurement& step) -> std::optional<JobOptions::BetterPlan> {
    measured.insert(step.rank);
    if (step.step >= 5 && measured.size() == 3 && !asker.joinable()) {
      asker = std::thread([&] {
        status = ask_for_status(asking);
        answer = ask_for_replan(asking);
      });
    }
    return std::nullopt;
  };
  const JobResult result = run_local_job(test::make_plan(3), options);
  REQUIRE(asker.joinable());
  asker.join();
  CHECK(result.reason.empty());
  REQUIRE(result.ok);
  CHECK(status.state == JobState::kRunning);
  CHECK(status.plan_digest == plan::digest(test::make_plan(3)));
  CHECK(status.members.size() == 3);
  CHECK(status.rates.size() == 4);  // a star
  CHECK(answer.epoch == 2);
  CHECK(answer.plan_digest == plan::digest(better));
  CHECK(answer.new_step_time == 2_ms);
  REQUIRE(result.epochs.size() == 1);
  CHECK(result.epochs[0].is_change);
  CHECK(result.epochs[0].reason == "because somebody asked");
  for (const WorkerReport& worker : result.workers) {
    CHECK(worker.steps == kSteps);
    CHECK(worker.parameters_digest == result.workers[0].parameters_digest);
  }
}

TEST_CASE("a better plan may have other steps, for as many samples") {
  if (const std::string reason = no_transport(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  constexpr std::uint32_t kSteps = 400;
  const plan::Plan first = test::make_plan(3);
  plan::Plan better = first;
  for (std::int64_t& batch : better.batch.local_batch) {
    batch *= 2;
  }
  JobOptions options = test::make_options("train", kSteps);
  options.batch_may_change = true;
  std::atomic<bool> has_asked = false;
  std::atomic<int> with_norms = 0;
  options.on_measured = [&](const StepMeasurement& step) -> std::optional<JobOptions::BetterPlan> {
    with_norms += step.norms ? 1 : 0;
    if (step.step < 5 || has_asked.exchange(true)) {
      return std::nullopt;
    }
    return JobOptions::BetterPlan{"because", better};
  };
  const JobResult result = run_local_job(first, options);
  CHECK(result.reason.empty());
  REQUIRE(result.ok);
  REQUIRE(result.epochs.size() == 1);
  const std::uint32_t before = result.epochs[0].step;
  for (const WorkerReport& worker : result.workers) {
    CHECK(worker.steps == before + (kSteps - before + 1) / 2);
    CHECK(worker.parameters_digest == result.workers[0].parameters_digest);
  }
  CHECK(with_norms > 0);
}

TEST_CASE("a job whose worker was killed goes on from its checkpoint to the same result") {
  if (const std::string reason = no_transport(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  constexpr std::int64_t kSteps = 400;
  const plan::Plan plan = test::make_plan(2);
  const rackrail::test::TemporaryDirectory folder;
  JobOptions options = test::make_options("train", kSteps, 20);
  options.checkpoint_folder = folder.path() / "unbroken";
  const JobResult unbroken = run_local_job(plan, options);
  REQUIRE(unbroken.reason.empty());
  CHECK(unbroken.checkpoints.size() >= kSteps / 20 - 1);

  options.checkpoint_folder = folder.path() / "broken";
  Listener listener;
  listener.attach(options);
  options.on_checkpoint = [&](std::uint32_t step) {
    if (step == 40) {
      kill(listener.pid(1), SIGKILL);
    }
  };
  const JobResult broken = run_local_job(plan, options);
  CHECK_FALSE(broken.ok);
  CHECK(broken.exit_status == 1);
  CHECK_THAT(broken.reason,
             Catch::StartsWith("rank 1 (pid ") && Catch::Contains("was lost: connection closed"));
  // The survivor ends with one line, which is the job's reason as far as it could know.
  REQUIRE(listener.lines(0).size() == 2);
  CHECK_THAT(broken.reason, Catch::StartsWith(listener.lines(0)[1]));

  options.on_checkpoint = {};
  options.on_worker_line = {};
  options.resume = true;
  const JobResult resumed = run_local_job(plan, options);
  CHECK(resumed.reason.empty());
  REQUIRE(resumed.ok);
  CHECK_FALSE(resumed.resumed_from.empty());
  CHECK(resumed.workers[0].first_step >= 40);
  CHECK(resumed.workers[0].first_step < kSteps);
  CHECK(resumed.workers[0].steps == kSteps);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(resumed.workers[rank].final_loss == unbroken.workers[rank].final_loss);
    CHECK(resumed.workers[rank].parameters_digest == unbroken.workers[0].parameters_digest);
  }
}

}  // namespace rackrail::runtime::job_test
