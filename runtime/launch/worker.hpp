// The life of one worker: join, connect, train by the plan, report, leave.
//
// Everything it needs except the meeting place comes from the coordinator: plan, training options,
// addresses of the others. Every wait has an end: a lost peer, a lost coordinator and a silent one
// are all noticed, and each becomes one line in the result.
#pragma once

#include <optional>
#include <string>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "runtime/coordinator/host_port.hpp"
#include "runtime/launch/report.hpp"

namespace rackrail::runtime {

struct WorkerOptions {
  HostPort coordinator;
  std::optional<Rank> rank;    ///< none: the coordinator gives one
  std::size_t world_size = 0;  ///< expected number of workers; 0: any
  std::string plan_digest;     ///< refuse a job with another plan; empty: any
  /// The file with the job's token; empty: the variable RACKRAIL_JOB_TOKEN.
  std::string token_file;
  /// What moves the gradients; empty: the variable RACKRAIL_TRANSPORT, or "ucx". Where it cannot be
  /// used, another one is taken and the report has a note.
  std::string transport;
  /// How long the coordinator and the other workers may take to come.
  Duration rendezvous_deadline = Duration(60'000'000'000'000);
  /// End with the process that started this one, even when that is killed (local workers).
  bool die_with_parent = false;
  std::string no_nccl;  ///< why its GPU cannot use NCCL whatever there is; empty: nothing
};

struct WorkerResult {
  bool ok = false;
  bool joined = false;  ///< had come into the job
  std::string reason;   ///< one line; empty when ok
  /// The coordinator gave that reason or took note of it: the job's leader says it, once for all.
  bool leader_knows = false;
  int exit_status = 0;  ///< 0 done, 1 failed or aborted, 2 bad input
  std::optional<WorkerReport> report;
};

/// Blocks until the job's end. Never throws for what happens in the job: it is in the result.
WorkerResult run_worker(const WorkerOptions& options);

}  // namespace rackrail::runtime
