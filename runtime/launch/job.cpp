#include "runtime/launch/job.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/other_load.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/own_addresses.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/launch/leader.hpp"
#include "runtime/launch/local_workers.hpp"
#include "runtime/launch/session.hpp"
#include "runtime/launch/worker.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::runtime {
namespace {

// Workers wait longer than the coordinator, which knows better who did not come.
constexpr Duration kWorkerPatience(5'000'000'000'000);

/// Prepares this process, before it has other threads, for NCCL on a GPU that others have too. Why
/// that is not possible, where there is another way for gradients. Throws RuntimeFailure where
/// there is none.
std::string prepare_for_nccl(const JobOptions& options, const LaunchEnvironment& launch) {
  if (!options.gpu || !options.gpu->shares || options.gpu->path == GpuPath::kStaged ||
      options.gpu->path == GpuPath::kDirect) {
    return {};
  }
  const auto problem = share_gpu_as(launch.rank, is_loopback(launch.coordinator.host));
  if (problem && options.gpu->path != GpuPath::kAuto) {
    throw RuntimeFailure(*problem);
  }
  return problem.value_or("");
}

/// The own worker of a process that a launcher started.
WorkerOptions launched_worker(const plan::Plan& plan, const JobOptions& options,
                              const LaunchEnvironment& launch, const HostPort& coordinator,
                              const std::string& no_nccl) {
  WorkerOptions worker;
  worker.coordinator = coordinator;
  worker.rank = launch.rank;
  worker.world_size = launch.world_size;
  worker.plan_digest = plan::digest(plan);
  worker.token_file = options.token_file;
  worker.transport = options.transport;
  worker.no_nccl = no_nccl;
  worker.rendezvous_deadline = options.rendezvous_deadline + kWorkerPatience;
  return worker;
}

JobResult follower_result(WorkerResult worker, Duration start) {
  JobResult result;
  result.ok = worker.ok;
  result.reason = std::move(worker.reason);
  result.exit_status = worker.exit_status;
  result.is_leader = false;
  result.speaks = !worker.leader_knows;
  if (worker.report) {
    result.membership_epochs = worker.report->membership_epochs;
    result.workers.push_back(*std::move(worker.report));
  }
  result.wall_time = trainer::wall_clock() - start;
  return result;
}

}  // namespace

JobResult run_local_job(const plan::Plan& plan, const JobOptions& options) {
  std::string token = read_job_token(options.token_file);
  if (token.empty()) {
    token = make_job_token();
  }
  const OtherLoad others;
  Leader leader(plan, options, options.listen, token);
  if (options.on_listening) {
    options.on_listening(leader.server().address());
  }
  LocalWorkers workers(options, leader.server(), leader.token());
  leader.set_fence([&workers](Rank rank) { workers.fence(rank); });
  leader.set_replace([&workers](Rank rank) { workers.replace(rank); });
  if (!leader.is_taken_up()) {
    workers.start_all(plan.rank_count());
  }
  const CoordinatorOutcome outcome = workers.wait();
  JobResult result = leader.result(outcome);
  if (!leader.is_taken_up()) {
    result.other_cores = others.cores();
  }
  if (result.ok) {
    const std::vector<std::string> deaths = workers.deaths();
    result.notes.insert(result.notes.end(), deaths.begin(), deaths.end());
  } else if (workers.interrupted_by() != 0) {
    result.exit_status = 128 + workers.interrupted_by();
  }
  return result;
}

JobResult run_launched_job(const plan::Plan& plan, const JobOptions& options,
                           const LaunchEnvironment& launch) {
  if (plan.rank_count() != launch.world_size) {
    throw PlanError(ErrorContext{.file = "",
                                 .where = "the plan's ranks",
                                 .found = std::to_string(plan.rank_count()),
                                 .expected = std::to_string(launch.world_size) +
                                             ", the number of workers that " + launch.launcher +
                                             " started"});
  }
  const std::string no_nccl = prepare_for_nccl(options, launch);
  if (launch.rank.value() != 0) {
    const Duration start = trainer::wall_clock();
    WorkerResult worker =
        run_worker(launched_worker(plan, options, launch, launch.coordinator, no_nccl));
    if (!worker.joined && worker.exit_status == 1) {
      worker.reason +=
          " (its address: " + launch.coordinator_source + "; RACKRAIL_COORDINATOR overrules it)";
    }
    return follower_result(std::move(worker), start);
  }

  // Others may come from other hosts by any of this host's addresses.
  Leader leader(plan, options, everywhere(launch.coordinator), read_job_token(options.token_file));
  const HostPort own = own_address(leader.server().address());
  const WorkerResult worker = run_worker(launched_worker(plan, options, launch, own, no_nccl));
  if (!worker.ok) {
    leader.server().stop(worker.reason);  // no news if it had joined
  }
  std::optional<CoordinatorOutcome> outcome = leader.server().wait_for(kEndPatience);
  if (!outcome) {
    outcome.emplace();
    outcome->reason = {worker.ok ? "the coordinator did not come to an end" : worker.reason, false};
  }
  JobResult result = leader.result(*outcome);
  if (!result.ok && !worker.ok) {
    result.exit_status = std::max(result.exit_status, worker.exit_status);
  }
  return result;
}

}  // namespace rackrail::runtime
