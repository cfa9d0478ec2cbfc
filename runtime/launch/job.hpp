// Running a plan as a job: `rackrail train` calls one of these two.
//
//   run_local_job     starts one worker process per rank on this machine (`rackrail worker`), runs
//                     the coordinator in this process, and collects what the workers report.
//   run_launched_job  is called by every process that mpirun, srun, torchrun … started; the one
//                     with rank 0 runs the coordinator beside its own worker.
//
// Both end cleanly whatever happens: a lost or failing worker, SIGINT or SIGTERM abort the job with
// one line that says why, and no worker process stays behind. Neither prints anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"
#include "runtime/coordinator/progress.hpp"
#include "runtime/coordinator/regroup.hpp"
#include "runtime/launch/environment.hpp"
#include "runtime/launch/job_settings.hpp"
#include "runtime/launch/report.hpp"
#include "runtime/trainer/synchrony.hpp"

namespace rackrail::runtime {

struct ChildCommand;

struct JobOptions {
  /// What to train: the text of a training configuration (runtime/trainer/config.hpp) and where it
  /// was read, which its relative paths start from. Workers get both as they are.
  std::string training;
  std::filesystem::path training_file;
  /// Instead of what the configuration says.
  std::optional<std::int64_t> steps;
  std::optional<std::uint64_t> seed;
  /// Another than synchronous training goes with neither on_measured nor gpu (ConfigError).
  trainer::Synchrony synchrony;

  /// Folder of checkpoints, seen by all workers; empty: none are written.
  std::filesystem::path checkpoint_folder;
  /// Resume from the latest complete checkpoint there, if there is one.
  bool resume = false;

  std::string transport = "ucx";
  /// Workers compute on GPUs, and gradients go from there; none: on the host.
  std::optional<GpuSettings> gpu;
  /// Step whose measured timeline is wanted in every WorkerReport.
  std::optional<std::uint32_t> timeline_step;

  /// Local jobs: how to start a worker; "--coordinator host:port --rank i" is appended. The first
  /// word is a path. Empty: this very program and "worker".
  std::vector<std::string> worker_command;
  /// Added to the environment of each worker.
  std::map<std::string, std::string> worker_environment;
  /// Local jobs: where the coordinator listens, in the network namespace of the calling thread.
  HostPort listen = {"127.0.0.1", 0};
  bool is_network_private = false;  ///< that namespace's: the token may cross it in clear
  /// Local jobs: changes how the worker of a rank is started, for example where.
  std::function<void(Rank, ChildCommand&)> place_worker;
  /// A file with the job's token; empty: RACKRAIL_JOB_TOKEN, or (local jobs) a random one.
  std::string token_file;

  Duration rendezvous_deadline = Duration(60'000'000'000'000);  ///< 60 s for all to come
  Duration heartbeat_period = 1_s;
  Duration heartbeat_timeout = 3_s;  ///< of silence: lost
  /// After the end: for workers to leave by themselves, and again from SIGTERM to SIGKILL.
  Duration stop_grace = Duration(3'000'000'000'000);

  /// Local jobs: where the coordinator listens, before any worker is started.
  std::function<void(const HostPort&)> on_listening;
  /// Called when something changed, at most some times per second, on a thread of its own.
  std::function<void(const JobProgress&)> on_progress;
  /// A line that a local worker wrote to stdout or stderr, without the line's end.
  std::function<void(Rank, std::string_view)> on_worker_line;
  /// What to go on with when workers are lost: a plan for the ranks of the first plan that are
  /// left, in their order, which become ranks 0, 1, …; its steps must have as many samples, and
  /// with a staleness it must be one for a parameter server. Called on a thread of its own. Empty:
  /// a loss ends the job.
  std::function<plan::Plan(const std::vector<Rank>& left)> plan_for;
  /// How long the job waits for another worker in the place of a lost one before it goes on
  /// without; none: it does not wait, but still takes up whoever comes later. Local jobs start that
  /// worker themselves. With plan_for only.
  std::optional<Duration> replacement_deadline;
  /// Folder of what the coordinator must not forget (job_store.hpp); empty: it is kept nowhere.
  /// When this process is killed, its workers wait for another one that is given the same folder,
  /// plan and training: that takes up the job. With plan_for only.
  std::filesystem::path state_folder;
  /// A plan that is better than the job's for the same ranks, and why, in one line.
  struct BetterPlan {
    std::string reason;
    plan::Plan plan;
  };
  /// Called with what each worker measured in each step; ranks are those of the first plan. All go
  /// on with the plan that it answers with, from the last step that all have done. Called on a
  /// thread of its own. Empty: nothing is measured. Its exceptions end the job.
  std::function<std::optional<BetterPlan>(const StepMeasurement&)> on_measured;
  /// What there is when somebody asks for another plan (coordinator/inquiry.hpp).
  struct Offer {
    std::string reason;                        ///< one line; why there is no plan, or what for
    std::optional<plan::Plan> plan{};          ///< for the same ranks
    std::optional<Duration> kept_step_time{};  ///< predicted with the plan in use
    std::optional<Duration> new_step_time{};   ///< with another
  };
  /// Called then, on the thread of on_measured; all go on with the plan as with a better one. Its
  /// exceptions are told to who asked. With plan_for or on_measured, and synchronous training only;
  /// otherwise, and where it is empty, there is no other plan.
  std::function<Offer()> on_replan;
  /// Whether a better plan may have steps of another size. The training is then as long as it is in
  /// samples by the first plan.
  bool batch_may_change = false;
  /// The job goes on, after a loss or with a better plan.
  std::function<void(const EpochBegin&)> on_epoch;
  /// A checkpoint of all ranks is complete and its manifest written.
  std::function<void(std::uint32_t step)> on_checkpoint;
};

struct JobResult {
  bool ok = false;
  /// One line; empty when ok. "rank 2 (pid 1234 on host-a) was lost: connection closed".
  std::string reason;
  /// 0 done, 1 a worker or the environment failed, 2 bad input, 128 + signal when interrupted.
  int exit_status = 0;
  /// Whether this process knows the whole job (local jobs; rank 0 under a launcher).
  bool is_leader = true;
  /// Whether `reason` is for this process to say: it leads the job, or its leader cannot know.
  bool speaks = true;
  /// By rank, as far as they came. On other processes than the leader: the own report only.
  std::vector<WorkerReport> workers;
  std::uint32_t membership_epochs = 0;
  std::vector<EpochBegin> epochs;          ///< after the first
  std::vector<std::uint32_t> checkpoints;  ///< steps whose checkpoint was completed
  std::filesystem::path resumed_from;      ///< checkpoint that the job went on from; empty: none
  std::vector<std::string> notes;          ///< what the user should know, one line each
  Duration wall_time;
  /// Cores of this machine that other programs took meanwhile (base/other_load.hpp), where all
  /// workers are processes that this one started.
  std::optional<double> other_cores;
};

/// One worker per rank of the plan, on this machine, or the workers of the job that is resumed.
/// Blocks until the end. SIGINT and SIGTERM are handled meanwhile and restored afterwards, so only
/// one job may run per process at a time. Throws ConfigError or PlanError for bad input; what
/// happens to workers is in the result.
JobResult run_local_job(const plan::Plan& plan, const JobOptions& options);

/// This process's part of a job that a launcher started. Every process has the same plan (compared
/// by digest) and options. Throws as above.
JobResult run_launched_job(const plan::Plan& plan, const JobOptions& options,
                           const LaunchEnvironment& launch);

}  // namespace rackrail::runtime
