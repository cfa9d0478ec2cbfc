#include "runtime/launch/leader.hpp"

#include <system_error>
#include <utility>

#include "base/build_config.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/tls.hpp"
#include "runtime/parameter_server/served_parts.hpp"
#include "runtime/trainer/checkpoint.hpp"
#include "runtime/trainer/effective_settings.hpp"
#include "runtime/trainer/profile.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::runtime {
namespace {

std::filesystem::path absolute_path(const std::filesystem::path& path) {
  return path.empty() ? path : std::filesystem::absolute(path);
}

/// The plan is for the model of this training, and the data can be read. Samples of the whole
/// training by this plan.
std::int64_t require_training(const trainer::TrainingConfig& training, const plan::Plan& plan) {
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
  const trainer::DataSplit data = trainer::load_data(training.data);
  const trainer::EffectiveSettings settings =
      trainer::effective_settings(training, plan, data.train.size());
  return settings.total_steps * settings.global_batch;
}

/// An asynchronous parameter server has a plan for one. What keeps ranks in step otherwise than by
/// sums works on the host's memory, and says nothing of what every step takes.
void require_synchrony(const JobOptions& options, const plan::Plan& plan) {
  if (options.synchrony.staleness) {
    ServedParts{plan};
  }
  if (!options.synchrony.is_synchronous() && options.on_measured) {
    throw ConfigError(ErrorContext{.file = "",
                                   .where = "synchrony",
                                   .found = "local steps or a staleness, and steps to be measured",
                                   .expected = "synchronous training to measure steps"});
  }
  if (!options.synchrony.is_synchronous() && options.gpu) {
    throw ConfigError(ErrorContext{.file = "",
                                   .where = "synchrony",
                                   .found = "local steps or a staleness, on GPUs",
                                   .expected = "synchronous training on GPUs"});
  }
}

/// Made here, so that a place where none can be is not found out after the first steps.
void require_folder(const std::filesystem::path& folder) {
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
void require_no_checkpoint(const std::filesystem::path& folder) {
  const trainer::FoundCheckpoint found = trainer::find_latest_valid(folder);
  if (found.path || found.damaged) {
    throw ConfigError(
        ErrorContext{.file = folder.string(),
                     .where = {},
                     .found = found.path ? "the checkpoint " + found.path->filename().string()
                                         : "a damaged checkpoint",
                     .expected = "--resume to resume from it, or a folder without checkpoints"});
  }
}

/// The latest one that is whole. A job that is lost before its first checkpoint begins anew, which
/// costs it no more than any loss does between two. Throws ConfigError where there are only damaged
/// ones.
SavedPoint saved_point(const std::filesystem::path& folder) {
  const trainer::FoundCheckpoint found = trainer::find_latest_valid(folder);
  if (found.path) {
    const std::int64_t step = trainer::verify_checkpoint(*found.path).info.step;
    return {static_cast<std::uint32_t>(step), found.path->string()};
  }
  if (found.damaged) {
    throw *found.damaged;
  }
  return {};
}

}  // namespace

Leader::Leader(const plan::Plan& plan, const JobOptions& options, const HostPort& listen,
               std::string token)
    : options_(options), start_(trainer::wall_clock()) {
  const JobSettings settings = settings_of(plan);
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
  coordinator.is_network_private = options.is_network_private;
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
  coordinator.heartbeat_period = options.heartbeat_period;
  set_callbacks(coordinator, settings.checkpoint_folder);
  server_ = std::make_unique<CoordinatorServer>(std::move(coordinator));
  if (store_ != nullptr && !is_taken_up_) {
    job.address = server_->address();
    store_->begin(job);
  }
}

/// Checked: bad input is said here, once, and not by every worker.
JobSettings Leader::settings_of(const plan::Plan& plan) {
  JobSettings settings;
  settings.training = options_.training;
  settings.training_file = absolute_path(options_.training_file);
  settings.steps = options_.steps;
  settings.seed = options_.seed;
  settings.checkpoint_folder = absolute_path(options_.checkpoint_folder);
  settings.timeline_step = options_.timeline_step;
  settings.gpu = options_.gpu;
  settings.synchrony = options_.synchrony;
  settings.survives_losses = options_.plan_for != nullptr;
  settings.measures_steps = options_.on_measured != nullptr;
  const trainer::TrainingConfig training = training_config(settings);
  if (!settings.checkpoint_folder.empty()) {
    require_folder(settings.checkpoint_folder);
  }
  if (options_.resume) {
    settings.restore = latest_checkpoint(settings.checkpoint_folder);
  }
  const std::int64_t samples = require_training(training, plan);
  if (options_.batch_may_change) {
    settings.samples = samples;
  }
  require_synchrony(options_, plan);
  settings.outlives_coordinator = !options_.state_folder.empty();
  return settings;
}

void Leader::set_callbacks(CoordinatorOptions& coordinator,
                           const std::filesystem::path& checkpoints) {
  if (store_ != nullptr) {
    coordinator.keep = [this](const EpochRecord& epoch) { store_->add(epoch); };
  }
  coordinator.on_progress = options_.on_progress;
  coordinator.on_checkpoint = [this, checkpoints](
                                  std::uint32_t step,
                                  const std::vector<std::vector<CheckpointFile>>& files) {
    commit(checkpoints, step, files);
  };
  if (options_.plan_for) {
    coordinator.on_loss = [this](const Loss& loss) { return plan_after(loss); };
    coordinator.replacement_deadline = options_.replacement_deadline;
    coordinator.on_vacant = [this](Rank seat) {
      if (replace_) {
        replace_(seat);
      }
    };
    if (!checkpoints.empty()) {
      coordinator.on_nobody_left = [checkpoints] { return saved_point(checkpoints); };
    }
  }
  if (options_.on_measured) {
    coordinator.on_measured = [this](const StepMeasurement& step) { return change_after(step); };
  }
  const bool may_change = options_.plan_for || options_.on_measured;
  if (options_.on_replan && may_change && options_.synchrony.is_synchronous()) {
    coordinator.on_replan = [this] { return offer(); };
  }
  coordinator.on_epoch = [this](const EpochBegin& begin) { began(begin); };
}

JobResult Leader::result(const CoordinatorOutcome& outcome) {
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

/// Chosen once for all ranks, so that they cannot differ.
std::filesystem::path Leader::latest_checkpoint(const std::filesystem::path& folder) {
  if (folder.empty()) {
    throw ConfigError(ErrorContext{.file = "<command line>",
                                   .where = "resume",
                                   .found = "no folder of checkpoints",
                                   .expected = "the folder to resume from"});
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
std::optional<EpochRecord> Leader::open_store(JobRecord& job) {
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

EpochPlan Leader::plan_after(const Loss& loss) {
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
  if (options_.synchrony.staleness) {
    ServedParts{plan};
  }
  return {plan::to_binary(plan), plan::digest(plan)};
}

std::optional<PlanChange> Leader::change_after(const StepMeasurement& step) {
  const std::optional<JobOptions::BetterPlan> better = options_.on_measured(step);
  if (!better) {
    return std::nullopt;
  }
  return PlanChange{better->reason, {plan::to_binary(better->plan), plan::digest(better->plan)}};
}

PlanOffer Leader::offer() {
  JobOptions::Offer made = options_.on_replan();
  PlanOffer offer{.reason = std::move(made.reason),
                  .kept_step_time = made.kept_step_time,
                  .new_step_time = made.new_step_time};
  if (made.plan) {
    offer.plan = {plan::to_binary(*made.plan), plan::digest(*made.plan)};
  }
  return offer;
}

void Leader::began(const EpochBegin& begin) {
  {
    const std::lock_guard lock(mutex_);
    epochs_.push_back(begin);
  }
  if (options_.on_epoch) {
    options_.on_epoch(begin);
  }
}

void Leader::commit(const std::filesystem::path& folder, std::uint32_t step,
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

}  // namespace rackrail::runtime
