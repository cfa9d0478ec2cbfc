// A worker process that does what a test wants, called as
//   scripted_worker <script> --coordinator host:port --rank i
//
//   train         what `rackrail worker` does; says its process id first
//   report        joins and reports a result without training
//   crash-early   rank 1 ends with status 2 and a last line before it joins; others train
//   crash-late    rank 1 joins and is killed; others wait for the job's end
//   linger        joins, waits for the abort, and then neither leaves nor heeds SIGTERM
// or, for launched jobs, as
//   scripted_worker launched <plan file> <training file>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <string>
#include <thread>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/client.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/launch/worker.hpp"

namespace {

using namespace rackrail;
using namespace rackrail::runtime;

int train(const HostPort& coordinator, Rank rank) {
  std::cout << "pid " << getpid() << std::endl;
  WorkerOptions options;
  options.coordinator = coordinator;
  options.rank = rank;
  options.die_with_parent = true;
  const WorkerResult result = run_worker(options);
  if (!result.ok) {
    std::cout << result.reason << std::endl;
  }
  return result.exit_status;
}

int join_and(const std::string& script, const HostPort& coordinator, Rank rank) {
  CoordinatorClient client(coordinator, read_job_token(""), {});
  JoinRequest request;
  request.rank = rank;
  request.host = "host-s";
  request.pid = getpid();
  request.version = build_config::kVersion;
  client.join(request, Duration(30'000'000'000'000));
  if (script == "crash-late" && rank == Rank(1)) {
    raise(SIGKILL);
  }
  std::cout << "joined" << std::endl;
  try {
    if (script == "report") {
      WorkerReport report;
      report.rank = rank;
      report.steps = 8;
      client.report_result(to_json(report));
    }
    client.wait_until_finished();
    client.leave(true);
    return 0;
  } catch (const PeerLostError& error) {
    if (script == "linger") {
      signal(SIGTERM, SIG_IGN);
      std::this_thread::sleep_for(std::chrono::hours(1));
    }
    client.leave(false, {error.what(), false});
    return 1;
  }
}

int launched(const std::string& plan_file, const std::string& training_file) {
  const auto launch = detect_launch(process_environment());
  JobOptions options;
  options.training = read_file(training_file);
  options.training_file = training_file;
  options.heartbeat_timeout = Duration(20'000'000'000'000);
  const JobResult result = run_launched_job(plan::load_plan(plan_file), options, launch.value());
  std::cout << (result.ok ? "ok" : result.reason) << ' ' << (result.is_leader ? "leader" : "other")
            << ' ' << result.workers.size() << std::endl;
  return result.exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string script = argc > 1 ? argv[1] : "";
  try {
    if (script == "launched" && argc == 4) {
      return launched(argv[2], argv[3]);
    }
    if (argc != 6) {
      std::cout << "six words expected" << std::endl;
      return 2;
    }
    const HostPort coordinator = parse_host_port(argv[3], "--coordinator");
    const Rank rank(std::stoi(argv[5]));
    if (script == "crash-early" && rank == Rank(1)) {
      std::cout << "data.csv: found nothing" << std::endl;
      return 2;
    }
    return script == "train" || script == "crash-early" ? train(coordinator, rank)
                                                        : join_and(script, coordinator, rank);
  } catch (const std::exception& error) {
    std::cout << "failed: " << error.what() << std::endl;
    return 3;
  }
}
