// Who started this process, and what it said about the job.
//
// Launchers tell their processes rank, size and meeting place through environment variables. This
// is the one place that knows their names. The first launcher in the order below whose variables
// are there wins, because the later ones are often set around the earlier ones (torchrun inside a
// Slurm step, mpirun inside an allocation):
//
//   1. rackrail   RACKRAIL_RANK, RACKRAIL_WORLD_SIZE, RACKRAIL_LOCAL_RANK
//   2. TF_CONFIG  JSON: cluster.{chief,worker} lists and task.{type,index}; the chief comes first
//   3. torchrun   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
//   4. Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   5. PMI, PMIx  PMI_RANK, PMI_SIZE, PMI_LOCAL_RANK; or PMIX_RANK, which needs
//                 RACKRAIL_WORLD_SIZE: PMIx says the size by a library call only
//   6. Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_NODELIST,
//                 SLURM_JOB_ID, SLURM_STEP_ID (or SLURM_NTASKS, SLURM_NODELIST)
//
// A launcher counts as there when the variable that carries the rank is set (RANK, a common name,
// only with WORLD_SIZE; Slurm only in a step: the shell of an allocation is no worker). What it
// says must then be complete and consistent; a variable that is missing or malformed is a
// ConfigError that names it, never a reason to try the next launcher. One exception: `srun --mpi=…`
// sets PMI variables beside its own; where both agree on the rank (and on the size, if PMI says
// one), Slurm is the launcher, because it also says where the hosts are.
//
// Where the coordinator listens (rank 0 runs it):
//   * RACKRAIL_COORDINATOR=host:port always wins;
//   * torchrun: MASTER_ADDR, and MASTER_PORT + 1, because torchrun's own store has MASTER_PORT;
//   * TF_CONFIG: the first task's host, its port + 1 for the same reason;
//   * Slurm: the first host of the node list; the port is derived from the job and step;
//   * mpirun, PMI, torchrun and Slurm where all processes are on one host: a Unix socket that this
//     user alone can reach, named by the launcher's job id or port (coordinator/local_socket.hpp).
//     The first two do not say where rank 0 is, so a job of theirs over several hosts needs
//     RACKRAIL_COORDINATOR, and the error says so;
//   * rackrail's own variables name no host, so they need RACKRAIL_COORDINATOR.
// A job of one worker meets nobody: 127.0.0.1 and any free port, unless another address is given.
// Derived ports are 20000 + hash(job id) mod 10000: the same in all processes of a job, most likely
// different between two jobs on one host. When the port is taken, rank 0 reports that; set
// RACKRAIL_COORDINATOR then.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "runtime/coordinator/host_port.hpp"

namespace rackrail::runtime {

/// Names and values of environment variables.
using EnvironmentMap = std::map<std::string, std::string, std::less<>>;

/// The environment of this process.
EnvironmentMap process_environment();

/// What a launcher said.
struct LaunchEnvironment {
  std::string launcher;  ///< "rackrail", "TF_CONFIG", "torchrun", "Open MPI", "PMI", "Slurm"
  Rank rank;
  std::size_t world_size = 1;      ///< rank < world_size
  std::size_t local_rank = 0;      ///< among the processes of this host; 0 where it is not said
  HostPort coordinator;            ///< where rank 0's coordinator is, by the rules above
  std::string coordinator_source;  ///< what says so: "MASTER_ADDR and MASTER_PORT + 1"
};

/// Nothing when no launcher started this process. Throws ConfigError with file "<environment>",
/// the variable, what was found and what was expected. Pure: reads only its argument.
std::optional<LaunchEnvironment> detect_launch(const EnvironmentMap& environment);

}  // namespace rackrail::runtime
