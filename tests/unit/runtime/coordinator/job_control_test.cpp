// What the coordinator's thread does with tasks that wait for it together: nobody else decides
// their order here, unlike with a server and clients.
#include "runtime/coordinator/job_control.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/runtime/coordinator/test_client.hpp"
#include "tests/unit/runtime/coordinator/test_crew.hpp"

namespace rackrail::runtime::job_control_test {
namespace {

using test::crew_options;
using test::TestClient;

/// Takes down what it is told.
class NotedStream final : public MemberStream {
 public:
  void welcome(Rank, const EpochRecord&, const PeerAddresses&) override { is_welcome = true; }
  void abort(const std::string&, bool come_back) override { told_to_come_back = come_back; }
  void finish() override {}
  void gathered(std::uint32_t, const std::vector<std::string>&) override {}
  void end(End how, const std::string&) override { ended = how; }

  bool is_welcome = false;
  std::optional<bool> told_to_come_back;
  std::optional<End> ended;
};

/// Three workers that have joined, of a job that goes on after a loss.
class Job {
 public:
  Job() : control(options_) {
    at_once({[this] { join(0); }, [this] { join(1); }, [this] { join(2); }});
  }
  ~Job() { control.finish(); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Does the tasks one after another, when all of them wait.
  void at_once(const std::vector<TaskThread::Task>& tasks) {
    std::promise<void> all_posted;
    std::promise<void> done;
    control.post([&] { all_posted.get_future().wait(); });
    for (const TaskThread::Task& task : tasks) {
      control.post(task);
    }
    control.post([&] { done.set_value(); });
    all_posted.set_value();
    done.get_future().wait();
  }

 private:
  void join(std::size_t rank) { control.join(streams[rank], TestClient::request(Rank(rank))); }

  static CoordinatorOptions surviving() {
    CoordinatorOptions options = crew_options(3);
    options.on_loss = [](const Loss&) { return EpochPlan{"plan for two", "second"}; };
    return options;
  }

  const CoordinatorOptions options_ = surviving();

 public:
  std::array<NotedStream, 3> streams;
  JobControl control;
};

}  // namespace

TEST_CASE("a heartbeat that waits behind a loss is told that the job goes on") {
  Job job;
  REQUIRE(job.streams[0].is_welcome);
  std::optional<bool> is_over;
  MembershipState state = MembershipState::kRunning;
  job.at_once({[&] { job.control.broken(job.streams[2]); },
               [&] {  // what a heartbeat is answered with
                 is_over = job.control.is_over_for(1);
                 state = job.control.membership().state();
               }});
  CHECK(is_over == true);
  CHECK(state != MembershipState::kAborted);
  CHECK(job.streams[0].told_to_come_back == true);
  CHECK(job.streams[1].told_to_come_back == true);
}

TEST_CASE("a job that too few are left for says who was lost") {
  Job job;
  job.at_once(
      {[&] { job.control.broken(job.streams[2]); }, [&] { job.control.broken(job.streams[0]); }});
  std::string reason;
  job.at_once({[&] { reason = job.control.membership().abort_reason().line; }});
  CHECK_THAT(reason, Catch::StartsWith("rank 2 (pid ") &&
                         Catch::EndsWith("; the worker that was rank 0 was lost meanwhile; fewer "
                                         "than 2 workers are left"));
}

}  // namespace rackrail::runtime::job_control_test
