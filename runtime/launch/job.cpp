#include "runtime/launch/job.hpp"

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/build_config.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/job_store.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/launch/job_settings.hpp"
#include "runtime/launch/session.hpp"
#include "runtime/launch/signals.hpp"
#include "runtime/launch/spawn.hpp"
#include "runtime/launch/worker.hpp"
#include "runtime/parameter_server/served_parts.hpp"
#include "runtime/trainer/checkpoint.hpp"
#include "runtime/trainer/profile.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::runtime {
namespace {

constexpr Duration kLook(100'000'000'000);  // 0.1 s between two looks at everything
// Workers wait longer than the coordinator, which knows better who did not come.
constexpr Duration kWorkerPatience(5'000'000'000'000);

std::string signal_name(int number) { return number == SIGINT ? "SIGINT" : "SIGTERM"; }

/// What the coordinator's side of a job has, whoever starts the workers.
class Leader {
 public:
  Leader(const plan::Plan& plan, const JobOptions& options, const HostPort& listen,
         std::string token)
      : options_(options), start_(trainer::wall_clock()) {
    JobSettings settings;
    settings.training = options.training;
    settings.training_file = absolute(options.training_file);
    settings.steps = options.steps;
    settings.seed = options.seed;
    settings.checkpoint_folder = absolute(options.checkpoint_folder);
    settings.timeline_step = options.timeline_step;
    settings.gpu = options.gpu;
    settings.synchrony = options.synchrony;
    settings.survives_losses = options.plan_for != nullptr;
    settings.measures_steps = options.on_measured != nullptr;
    // Bad input is said here, once, and not by every worker.
    const trainer::TrainingConfig training = training_config(settings);
    if (!settings.checkpoint_folder.empty()) {
      require_folder(settings.checkpoint_folder);
    }
    if (options.resume) {
      settings.restore = latest_checkpoint(settings.checkpoint_folder);
    }
    require_training(training, plan);
    require_synchrony(options, plan);

    settings.outlives_coordinator = !options.state_folder.empty();
    JobRecord job{.identity = sha256_hex(plan::digest(plan) + to_json(settings)),
                  .address = listen,
                  .token = std::move(token),
                  .job_options = {}};
    CoordinatorOptions coordinator;
    if (!options.state_folder.empty()) {
      coordinator.recovered = open_store(job);
      is_taken_up_ = coordinator.recovered.has_value();
    }
    if (!options.resume && !is_taken_up_ && !settings.checkpoint_folder.empty()) {
      require_no_checkpoint(settings.checkpoint_folder);
    }
    coordinator.listen = job.address;
    coordinator.token = job.token;
    coordinator.tls = tls_of_environment();
    token_ = job.token;
    coordinator.membership.world_size = plan.rank_count();
    coordinator.membership.rendezvous_deadline = options.rendezvous_deadline;
    coordinator.membership.heartbeat_timeout = options.heartbeat_timeout;
    coordinator.membership.leave_grace = options.stop_grace;
    coordinator.membership.plan_digest = plan::digest(plan);
    coordinator.membership.version = build_config::kVersion;
    coordinator.plan = plan::to_binary(plan);
    coordinator.job_options = is_taken_up_ ? job.job_options : to_json(settings);
    job.job_options = coordinator.job_options;
    if (store_ != nullptr) {
      coordinator.keep = [this](const EpochRecord& epoch) { store_->add(epoch); };
    }
    coordinator.heartbeat_period = options.heartbeat_period;
    coordinator.on_progress = options.on_progress;
    coordinator.on_checkpoint = [this, folder = settings.checkpoint_folder](
                                    std::uint32_t step,
                                    const std::vector<std::vector<CheckpointFile>>& files) {
      commit(folder, step, files);
    };
    if (options.plan_for) {
      coordinator.on_loss = [this](const Loss& loss) { return plan_after(loss); };
      coordinator.replacement_deadline = options.replacement_deadline;
      coordinator.on_vacant = [this](Rank seat) {
        if (replace_) {
          replace_(seat);
        }
      };
    }
    if (options.on_measured) {
      coordinator.on_measured = [this](const StepMeasurement& step) { return change_after(step); };
    }
    coordinator.on_epoch = [this](const EpochBegin& begin) { began(begin); };
    server_ = std::make_unique<CoordinatorServer>(std::move(coordinator));
    if (store_ != nullptr && !is_taken_up_) {
      job.address = server_->address();
      store_->begin(job);
    }
  }

  const std::string& token() const { return token_; }
  /// Whether there are workers already, which wait for this coordinator.
  bool is_taken_up() const { return is_taken_up_; }

  /// Who makes sure that a lost worker does nothing any more. Before any worker comes.
  void set_fence(std::function<void(Rank)> fence) { fence_ = std::move(fence); }
  /// Who does the same and starts another one in its place. Likewise.
  void set_replace(std::function<void(Rank)> replace) { replace_ = std::move(replace); }

  CoordinatorServer& server() { return *server_; }

  JobResult result(const CoordinatorOutcome& outcome) {
    if (store_ != nullptr) {
      store_->end();
    }
    JobResult result;
    result.ok = outcome.ok;
    result.reason = outcome.reason.line;
    result.exit_status = outcome.ok ? 0 : (outcome.reason.bad_input ? 2 : 1);
    result.membership_epochs = outcome.epochs;
    for (const std::string& report : outcome.results) {
      if (!report.empty()) {
        result.workers.push_back(parse_worker_report(report));
      }
    }
    result.resumed_from = resumed_from_;
    result.notes = notes_;
    {
      const std::lock_guard lock(mutex_);
      result.checkpoints = checkpoints_;
      result.epochs = epochs_;
    }
    result.wall_time = trainer::wall_clock() - start_;
    return result;
  }

 private:
  static std::filesystem::path absolute(const std::filesystem::path& path) {
    return path.empty() ? path : std::filesystem::absolute(path);
  }

  /// The plan is for the model of this training, and the data can be read.
  static void require_training(const trainer::TrainingConfig& training, const plan::Plan& plan) {
    const auto model = trainer::make_model(training.model, training.data.format.image,
                                           training.data.format.classes, training.seed);
    if (!plan.workload_digest.empty() &&
        trainer::workload_shape(training.name, *model).digest() != plan.workload_digest) {
      throw PlanError(ErrorContext{
          .file = "",
          .where = "workload_digest",
          .found = "a plan for model '" + plan.workload_name + "'",
          .expected = "one for the model of training '" + training.name +
                      "' ('rackrail calibrate --workload-output' writes that workload)"});
    }
    trainer::load_data(training.data);
  }

  /// An asynchronous parameter server has a plan for one. What goes on with another plan goes back
  /// to the last step that all have, and where ranks are not in step there is none. What keeps
  /// them in step otherwise than by sums works on the host's memory.
  static void require_synchrony(const JobOptions& options, const plan::Plan& plan) {
    if (options.synchrony.staleness) {
      ServedParts{plan};
    }
    if (!options.synchrony.is_synchronous() && (options.plan_for || options.on_measured)) {
      throw ConfigError(ErrorContext{.file = "",
                                     .where = "synchrony",
                                     .found = "local steps or a staleness, and other plans to go "
                                              "on with",
                                     .expected = "synchronous training to go on with other plans"});
    }
    if (!options.synchrony.is_synchronous() && options.gpu) {
      throw ConfigError(ErrorContext{.file = "",
                                     .where = "synchrony",
                                     .found = "local steps or a staleness, on GPUs",
                                     .expected = "synchronous training on GPUs"});
    }
  }

  /// Made here, so that a place where none can be is not found out after the first steps.
  static void require_folder(const std::filesystem::path& folder) {
    std::error_code status;
    std::filesystem::create_directories(folder, status);
    if (status) {
      throw ConfigError(ErrorContext{.file = folder.string(),
                                     .where = {},
                                     .found = status.message(),
                                     .expected = "a folder for checkpoints"});
    }
  }

  /// A run that starts anew would mix its checkpoints with those of another one, and in time remove
  /// them.
  static void require_no_checkpoint(const std::filesystem::path& folder) {
    const trainer::FoundCheckpoint found = trainer::find_latest_valid(folder);
    if (found.path || found.damaged) {
      throw ConfigError(
          ErrorContext{.file = folder.string(),
                       .where = {},
                       .found = found.path ? "the checkpoint " + found.path->filename().string()
                                           : "a damaged checkpoint",
                       .expected = "--resume to go on from it, or a folder without checkpoints"});
    }
  }

  /// Chosen once for all ranks, so that they cannot differ.
  std::filesystem::path latest_checkpoint(const std::filesystem::path& folder) {
    if (folder.empty()) {
      throw ConfigError(ErrorContext{.file = "<command line>",
                                     .where = "resume",
                                     .found = "no folder of checkpoints",
                                     .expected = "the folder to go on from"});
    }
    const trainer::FoundCheckpoint found = trainer::find_latest_valid(folder);
    notes_ = found.notes;
    if (!found.path && found.damaged) {
      // Starting anew would in time remove what may be the only trace of the work.
      throw *found.damaged;
    }
    if (!found.path) {
      notes_.push_back("no checkpoint in " + folder.string() + ": training starts at step 0");
      return {};
    }
    resumed_from_ = *found.path;
    return *found.path;
  }

  /// The latest epoch of the job that is in the store, whose address, token and options `job` gets.
  std::optional<EpochRecord> open_store(JobRecord& job) {
    store_ = std::make_unique<JobStore>(options_.state_folder);
    std::optional<UnfinishedJob> unfinished = store_->unfinished();
    if (!unfinished) {
      return std::nullopt;
    }
    if (unfinished->job.identity != job.identity) {
      throw ConfigError(ErrorContext{.file = options_.state_folder.string(),
                                     .where = {},
                                     .found = "the unfinished job of another plan or training",
                                     .expected = "that of this plan and training, or none"});
    }
    job = unfinished->job;
    notes_.push_back("took up the job in " + options_.state_folder.string() + " at epoch " +
                     std::to_string(unfinished->epoch.epoch));
    return std::move(unfinished->epoch);
  }

  EpochPlan plan_after(const Loss& loss) {
    for (const Rank seat : loss.lost) {
      if (fence_) {
        fence_(seat);
      }
    }
    const plan::Plan plan = options_.plan_for(loss.left);
    if (plan.rank_count() != loss.left.size()) {
      throw PlanError("a plan for " + std::to_string(plan.rank_count()) + " ranks, where " +
                      std::to_string(loss.left.size()) + " are left");
    }
    return {plan::to_binary(plan), plan::digest(plan)};
  }

  std::optional<PlanChange> change_after(const StepMeasurement& step) {
    const std::optional<JobOptions::BetterPlan> better = options_.on_measured(step);
    if (!better) {
      return std::nullopt;
    }
    return PlanChange{better->reason, {plan::to_binary(better->plan), plan::digest(better->plan)}};
  }

  void began(const EpochBegin& begin) {
    {
      const std::lock_guard lock(mutex_);
      epochs_.push_back(begin);
    }
    if (options_.on_epoch) {
      options_.on_epoch(begin);
    }
  }

  void commit(const std::filesystem::path& folder, std::uint32_t step,
              const std::vector<std::vector<CheckpointFile>>& files) {
    std::vector<trainer::CheckpointFile> all;
    for (const std::vector<CheckpointFile>& rank : files) {
      for (const CheckpointFile& file : rank) {
        all.push_back({file.name, file.size.count(), file.sha256});
      }
    }
    trainer::commit_checkpoint(folder, step, std::move(all));
    {
      const std::lock_guard lock(mutex_);
      checkpoints_.push_back(step);
    }
    if (options_.on_checkpoint) {
      options_.on_checkpoint(step);
    }
  }

  const JobOptions& options_;
  const Duration start_;
  std::filesystem::path resumed_from_;
  std::vector<std::string> notes_;
  std::mutex mutex_;
  std::vector<std::uint32_t> checkpoints_;  // guarded by mutex_
  std::vector<EpochBegin> epochs_;          // guarded by mutex_
  std::function<void(Rank)> fence_;
  std::function<void(Rank)> replace_;
  std::string token_;
  bool is_taken_up_ = false;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<CoordinatorServer> server_;  // last: its threads call commit()
};

/// Starts the workers of a local job and looks after them until the job is over.
class LocalWorkers {
 public:
  LocalWorkers(const JobOptions& options, CoordinatorServer& server, const std::string& token)
      : options_(options),
        server_(server),
        command_(worker_command(token)),
        children_([this](std::size_t child, std::string_view line) {
          if (options_.on_worker_line) {
            options_.on_worker_line(ranks_.at(child), line);
          }
        }) {}

  void start_all(std::size_t count) {
    has_started_workers_ = true;
    for (std::size_t rank = 0; rank < count; ++rank) {
      start(Rank(rank));
    }
  }

  /// Its worker is lost and must not come back to life. From any thread.
  void fence(Rank rank) { want({.rank = rank, .is_replaced = false}); }
  /// The same, and another one is started in its place.
  void replace(Rank rank) { want({.rank = rank, .is_replaced = true}); }

  CoordinatorOutcome wait() {
    while (true) {
      for (const LostWorker& lost : take_lost()) {
        end_worker(lost.rank);
        if (lost.is_replaced) {
          start(lost.rank);
        }
      }
      // Its descriptor stays readable after the first signal.
      const int signals = guard_.received() == 0 ? guard_.file_descriptor() : -1;
      for (const ChildEnd& end : children_.wait_for(kLook, signals)) {
        ended(end);
      }
      if (guard_.received() != 0) {
        server_.stop("interrupted by " + signal_name(guard_.received()));
      }
      if (has_started_workers_ && children_.running() == 0) {
        server_.stop("all workers ended without a result");  // no news if there are results
      }
      if (std::optional<CoordinatorOutcome> outcome = server_.wait_for(Duration())) {
        finish();
        if (!outcome->ok) {
          explain(outcome->reason);
        }
        return *std::move(outcome);
      }
    }
  }

  int interrupted_by() const { return guard_.received(); }

 private:
  struct LostWorker {
    Rank rank;
    bool is_replaced = false;
  };

  ChildCommand worker_command(const std::string& token) const {
    ChildCommand command;
    command.words = options_.worker_command;
    if (command.words.empty()) {
      command.words = {"/proc/self/exe", "worker"};
    }
    if (!options_.state_folder.empty()) {
      command.words.emplace_back("--outlives-coordinator");
      command.outlives_parent = true;
    }
    command.words.insert(command.words.end(),
                         {"--coordinator", to_string(server_.address()), "--rank"});
    command.environment = options_.worker_environment;
    command.environment[kJobTokenVariable] = token;
    command.environment["RACKRAIL_TRANSPORT"] = options_.transport;
    return command;
  }

  void start(Rank rank) {
    ChildCommand command = command_;
    command.words.push_back(std::to_string(rank.value()));
    if (options_.gpu && options_.gpu->shares) {
      command.environment.merge(shared_gpu_variables(rank));
    }
    if (options_.place_worker) {
      options_.place_worker(rank, command);
    }
    ranks_.push_back(rank);
    children_.start(command);
  }

  void want(LostWorker lost) {
    const std::lock_guard lock(mutex_);
    lost_.push_back(lost);
  }

  std::vector<LostWorker> take_lost() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lost_, {});
  }

  void end_worker(Rank rank) {
    for (std::size_t child = 0; child < ranks_.size(); ++child) {
      if (ranks_[child] == rank) {
        children_.kill(child);
      }
    }
    if (command_.outlives_parent) {
      ChildCommand command =
          command_;  // as another process with the same state may have started it
      command.words.push_back(std::to_string(rank.value()));
      kill_orphans(command);
    }
  }

  void ended(const ChildEnd& end) {
    if (!server_.has_started() && !end.ok()) {
      if (!early_end_) {
        early_end_ = end;
      }
      server_.stop(name(end) + ") " + describe(end) + " before all workers had come" +
                   (end.last_line.empty() ? "" : ": " + end.last_line));
    }
    if (end.signal != 0) {
      killed_.push_back(end);
    }
  }

  /// The workers leave by themselves; those that do not are ended.
  void finish() {
    const Duration start = trainer::wall_clock();
    const Duration grace = guard_.count() > 1 ? Duration() : options_.stop_grace;
    while (children_.running() > 0 && guard_.count() < 2 && trainer::wall_clock() - start < grace) {
      for (const ChildEnd& end : children_.wait_for(kLook)) {
        ended(end);
      }
    }
    children_.terminate(guard_.count() > 1 ? Duration() : options_.stop_grace);
  }

  /// Adds what only the parent of the processes knows.
  void explain(AbortReason& reason) const {
    if (early_end_ && early_end_->status == 2) {
      reason.bad_input = true;
    }
    for (const ChildEnd& end : killed_) {
      if (reason.line.starts_with(name(end) + " ")) {
        reason.line += "; its process " + describe(end);
      }
    }
  }

  std::string name(const ChildEnd& end) const {
    return "rank " + std::to_string(ranks_.at(end.child).value()) + " (pid " +
           std::to_string(end.pid);
  }

  const JobOptions& options_;
  CoordinatorServer& server_;
  const ChildCommand command_;  ///< of every worker, without its rank
  InterruptGuard guard_;
  std::vector<Rank> ranks_;  ///< by child
  ChildProcesses children_;
  bool has_started_workers_ = false;
  std::optional<ChildEnd> early_end_;
  std::vector<ChildEnd> killed_;  ///< before the job was over
  std::mutex mutex_;
  std::vector<LostWorker> lost_;  ///< not killed yet; guarded by mutex_
};

/// The own worker of a process that a launcher started.
WorkerOptions launched_worker(const plan::Plan& plan, const JobOptions& options,
                              const LaunchEnvironment& launch, const HostPort& coordinator) {
  WorkerOptions worker;
  worker.coordinator = coordinator;
  worker.rank = launch.rank;
  worker.world_size = launch.world_size;
  worker.plan_digest = plan::digest(plan);
  worker.token_file = options.token_file;
  worker.transport = options.transport;
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
  Leader leader(plan, options, options.listen, token);
  LocalWorkers workers(options, leader.server(), leader.token());
  leader.set_fence([&workers](Rank rank) { workers.fence(rank); });
  leader.set_replace([&workers](Rank rank) { workers.replace(rank); });
  if (!leader.is_taken_up()) {
    workers.start_all(plan.rank_count());
  }
  const CoordinatorOutcome outcome = workers.wait();
  JobResult result = leader.result(outcome);
  if (!result.ok && workers.interrupted_by() != 0) {
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
  if (options.gpu && options.gpu->shares) {
    for (const auto& [name, value] : shared_gpu_variables(launch.rank)) {
      setenv(name.c_str(), value.c_str(), 1);  // before there are other threads
    }
  }
  if (launch.rank.value() != 0) {
    const Duration start = trainer::wall_clock();
    WorkerResult worker = run_worker(launched_worker(plan, options, launch, launch.coordinator));
    if (!worker.joined && worker.exit_status == 1) {
      worker.reason +=
          " (its address: " + launch.coordinator_source + "; RACKRAIL_COORDINATOR overrules it)";
    }
    return follower_result(std::move(worker), start);
  }

  // Others may come from other hosts by any of this host's addresses.
  HostPort listen = launch.coordinator;
  HostPort own = launch.coordinator;
  if (!is_loopback(listen.host)) {
    listen.host = "0.0.0.0";
    own.host = "127.0.0.1";
  }
  Leader leader(plan, options, listen, read_job_token(options.token_file));
  own.port = leader.server().address().port;
  const WorkerResult worker = run_worker(launched_worker(plan, options, launch, own));
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
