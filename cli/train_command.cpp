#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/calibration.hpp"
#include "cli/commands.hpp"
#include "cli/continuation.hpp"
#include "cli/emulation.hpp"
#include "cli/inputs.hpp"
#include "cli/local_prediction.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"
#include "cli/trace.hpp"
#include "plan/format.hpp"
#include "plan/noise_scale.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/transport.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

constexpr std::uint32_t kTimelineStep = 10;
constexpr int kMostWorkers = 65'536;
constexpr int kMostTrainingSteps = 1'000'000'000;

struct TrainOptions {
  std::string plan;
  ClusterOptions cluster;
  std::string training = "digits-mlp";
  std::size_t workers = 0;
  std::int64_t steps = 0;
  std::string checkpoints;
  bool resume = false;
  std::string transport = "ucx";
  std::string calibration;
  std::string workload;
  std::string trace;
  std::string token_file;
  std::string emulate;
  double scale = 1;
  std::string on_loss = "stop";
  std::string on_slow = "ignore";
  std::string state;
  std::string heartbeat_timeout = "1.2 s";
  bool has_seed = false;  ///< whether it was said

  bool watches() const { return on_slow != "ignore"; }
  /// Whether the cluster and the workload are needed, to plan again.
  bool may_plan() const { return on_loss != "stop" || watches(); }
};

std::filesystem::path training_file(const std::string& name_or_path) {
  if (std::filesystem::exists(name_or_path)) {
    return name_or_path;
  }
  const std::filesystem::path folder = topology::configs_folder() / "training";
  const std::filesystem::path shipped = folder / (name_or_path + ".yaml");
  if (std::filesystem::exists(shipped)) {
    return shipped;
  }
  throw ConfigError(ErrorContext{"<command line>", "--training", fmt::format("'{}'", name_or_path),
                                 "a training file, or the name of one in " + folder.string()});
}

/// What moved over each tier of the plan's cluster; empty when the cluster is not known here.
std::map<std::string, std::int64_t> bytes_over_tiers(
    const runtime::JobResult& job, const std::optional<topology::Topology>& cluster) {
  std::map<std::string, std::int64_t> tiers;
  if (!cluster.has_value()) {
    return tiers;
  }
  topology::Router router(*cluster);
  for (const runtime::WorkerReport& worker : job.workers) {
    for (const auto& [pair, bytes] : worker.bytes_by_pair) {
      std::set<std::string> crossed;
      for (const LinkId link : router.route(pair.first, pair.second)) {
        crossed.insert(cluster->link(link).tier);
      }
      for (const std::string& tier : crossed) {
        tiers[tier] += bytes.count();
      }
    }
  }
  return tiers;
}

std::optional<topology::Topology> cluster_of(Session& session, const TrainOptions& options,
                                             const plan::Plan& plan) {
  ClusterOptions source = options.cluster;
  if (source.cluster.empty()) {
    source.cluster = options.emulate;
  }
  const bool asked = !source.cluster.empty();
  if (!asked) {
    source.cluster = plan.cluster_name;
  }
  std::optional<topology::Topology> cluster;
  try {
    cluster = source.load(session);
  } catch (const ConfigError&) {
    if (asked) {
      throw;
    }
    if (options.may_plan()) {
      throw ConfigError(ErrorContext{
          options.plan, "cluster_name",
          fmt::format("'{}', which is not a shipped cluster", plan.cluster_name),
          fmt::format("--cluster with the file that the plan was made for: --on-{} plans again "
                      "with it",
                      options.watches() ? "slow" : "loss")});
    }
    session.note("note: cluster '" + plan.cluster_name +
                 "' is not a shipped one; bytes per tier need --cluster");
    return std::nullopt;
  }
  if (cluster->digest() != plan.cluster_digest) {
    throw PlanError(
        ErrorContext{options.plan, "cluster_digest",
                     fmt::format("a plan for another cluster than '{}'", cluster->name()),
                     "--cluster with the file that the plan was made for"});
  }
  return cluster;
}

plan::Workload workload_of(Session& session, const TrainOptions& options, const plan::Plan& plan) {
  const std::string source = options.workload.empty() ? plan.workload_name : options.workload;
  plan::Workload workload = load_workload(session, source);
  if (workload.digest() != plan.workload_digest) {
    throw PlanError(ErrorContext{options.plan, "workload_digest",
                                 fmt::format("a plan for model '{}'", plan.workload_name),
                                 fmt::format("one for the model of '{}'", source)});
  }
  return workload;
}

std::optional<sim::StepResult> predicted_step(Session& session, const TrainOptions& options,
                                              const plan::Plan& plan) {
  if (options.calibration.empty()) {
    return std::nullopt;
  }
  const Calibration calibration = read_calibration(options.calibration);
  session.add_input(options.calibration);
  return predict_here(plan, workload_of(session, options, plan), calibration);
}

/// A progress bar over steps; the callback comes from another thread.
class TrainingProgress {
 public:
  explicit TrainingProgress(std::int64_t steps) : steps_(steps), bar_("training") {}

  void update(const runtime::JobProgress& progress) {
    const std::lock_guard lock(mutex_);
    if (progress.joined < progress.world_size) {
      bar_.update(0,
                  fmt::format("{} of {} workers are here", progress.joined, progress.world_size));
      return;
    }
    const double share =
        steps_ > 0 ? static_cast<double>(progress.step) / static_cast<double>(steps_) : 0;
    bar_.update(share, fmt::format("step {}, loss {:.4f}, {} per step", progress.step,
                                   progress.loss, to_string(progress.step_time)));
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    bar_.clear();
  }

 private:
  std::mutex mutex_;
  std::int64_t steps_;
  ProgressBar bar_;
};

struct Summary {
  std::uint32_t steps = 0;
  double loss = 0;             ///< of the last step, mean over the ranks
  std::vector<double> losses;  ///< likewise, by step of this run
  std::optional<double> accuracy;
  Duration step_time;
  double sync_share = 0;
  Duration cpu_time;
  bool parameters_agree = true;
  std::optional<double> noise_scale;  ///< live estimate at the end, in samples
};

std::vector<std::string> notes_of(const runtime::JobResult& job) {
  std::vector<std::string> notes = job.notes;
  if (!job.workers.empty()) {
    const auto& leaders = job.workers[0].notes;
    notes.insert(notes.end(), leaders.begin(), leaders.end());
  }
  return notes;
}

/// The estimate over the last fifty steps or so; none for one rank, or while the gradient drowns.
std::optional<double> noise_scale(const plan::Plan& plan, const runtime::JobResult& job) {
  std::size_t steps = job.workers.size() < 2 ? 0 : job.workers[0].squared_norms.size();
  for (const runtime::WorkerReport& worker : job.workers) {
    steps = std::min(steps, worker.weighted_squared_norms.size());
  }
  plan::NoiseScaleEstimator estimator;
  for (std::size_t step = 0; step < steps; ++step) {
    double weighted = 0;
    for (const runtime::WorkerReport& worker : job.workers) {
      weighted += worker.weighted_squared_norms[step];
    }
    estimator.add(weighted, job.workers[0].squared_norms[step], job.workers.size(),
                  plan.batch.global_batch());
  }
  return estimator.noise_scale();
}

Summary summarise(const plan::Plan& plan, const runtime::JobResult& job) {
  Summary summary;
  const auto ranks = static_cast<double>(job.workers.size());
  for (const runtime::WorkerReport& worker : job.workers) {
    summary.steps = std::max(summary.steps, worker.steps);
    summary.step_time = std::max(summary.step_time, worker.step_time);
    summary.sync_share = std::max(summary.sync_share, worker.sync_share);
    summary.cpu_time += worker.cpu_time;
    summary.parameters_agree =
        summary.parameters_agree && worker.parameters_digest == job.workers[0].parameters_digest;
    summary.loss += worker.final_loss / ranks;
    summary.losses.resize(std::max(summary.losses.size(), worker.losses.size()), 0.0);
    for (std::size_t i = 0; i < worker.losses.size(); ++i) {
      summary.losses[i] += worker.losses[i] / ranks;
    }
    if (worker.final_accuracy.has_value()) {
      summary.accuracy = worker.final_accuracy;
    }
  }
  summary.noise_scale = noise_scale(plan, job);
  return summary;
}

void print_text(const plan::Plan& plan, const runtime::JobResult& job, const Summary& summary,
                const std::optional<sim::StepResult>& predicted,
                const std::map<std::string, std::int64_t>& tiers) {
  Table table({{"run"}, {""}});
  table.add_row({"plan", plan.name});
  table.add_row({"workers", std::to_string(job.workers.size())});
  table.add_row({"steps", std::to_string(summary.steps)});
  const bool has_measured = !summary.losses.empty();  // else no step was left after the checkpoint
  table.add_row({"step time", has_measured
                                  ? to_string(summary.step_time) + " (median, slowest rank)"
                                  : "- (no step was left)"});
  if (predicted.has_value()) {
    const Duration time = predicted->estimate.step_time;
    table.add_row({"predicted", has_measured ? fmt::format("{} ({:+.1f} %)", to_string(time),
                                                           (time / summary.step_time - 1) * 100)
                                             : to_string(time)});
  }
  table.add_row(
      {"synchronisation", has_measured ? percent(summary.sync_share) + " of the step" : "-"});
  for (const auto& [tier, bytes] : tiers) {
    table.add_row({"over " + tier, to_string(Bytes(bytes))});
  }
  if (summary.noise_scale.has_value()) {
    table.add_row({"noise scale",
                   fmt::format("{:.4g} samples (gradients, last steps)", *summary.noise_scale)});
  }
  table.add_row({"final loss", has_measured ? fmt::format("{:.4f}", summary.loss) : "-"});
  if (summary.accuracy.has_value()) {
    table.add_row({"final accuracy", percent(*summary.accuracy)});
  }
  table.add_row({"parameters",
                 summary.parameters_agree ? "bit-identical on all ranks" : "DIFFER between ranks"});
  fmt::print("{}", table.to_string());
}

nlohmann::json run_json(const plan::Plan& plan, const runtime::JobResult& job,
                        const Summary& summary, const std::optional<sim::StepResult>& predicted,
                        const std::map<std::string, std::int64_t>& tiers) {
  nlohmann::json result = {{"plan_name", plan.name},
                           {"plan_digest", plan::digest(plan)},
                           {"plan_step_time_s", plan.prediction.step_time.seconds()},
                           {"plan_sync_share", plan.prediction.sync_share},
                           {"workers", job.workers.size()},
                           {"steps", summary.steps},
                           {"final_loss", summary.loss},
                           {"step_time_s", summary.step_time.seconds()},
                           {"sync_share", summary.sync_share},
                           {"cpu_time_s", summary.cpu_time.seconds()},
                           {"wall_s", job.wall_time.seconds()},
                           {"bytes_over_tier", tiers},
                           {"parameters_agree", summary.parameters_agree},
                           {"epochs_of_membership", job.membership_epochs},
                           {"losses", summary.losses},
                           {"resumed_from", job.resumed_from.string()},
                           {"notes", notes_of(job)}};
  if (summary.losses.empty()) {  // no step was left after the checkpoint
    for (const char* const measured : {"final_loss", "step_time_s", "sync_share"}) {
      result[measured] = nullptr;
    }
  }
  result["final_accuracy"] =
      summary.accuracy.has_value() ? nlohmann::json(*summary.accuracy) : nlohmann::json();
  result["noise_scale"] =
      summary.noise_scale.has_value() ? nlohmann::json(*summary.noise_scale) : nlohmann::json();
  result["predicted_step_time_s"] = predicted.has_value()
                                        ? nlohmann::json(predicted->estimate.step_time.seconds())
                                        : nlohmann::json();
  return result;
}

void write_trace(const std::string& path, const plan::Plan& plan, const runtime::JobResult& job,
                 const std::optional<sim::StepResult>& predicted) {
  std::vector<TraceProcess> processes;
  TraceProcess measured{"measured: " + plan.name, {}};
  for (const runtime::WorkerReport& worker : job.workers) {
    measured.events.insert(measured.events.end(), worker.timeline.begin(), worker.timeline.end());
  }
  processes.push_back(std::move(measured));
  if (predicted.has_value()) {
    processes.push_back({"simulated on this machine: " + plan.name, predicted->timeline});
  }
  write_file_atomically(path, to_trace_json(processes));
}

/// The job on the emulated network of the plan's cluster; its links, measured before, are left in
/// `links`. A job that was not started, because the user interrupted, has no workers.
runtime::JobResult run_emulated_job(Session& session, const TrainOptions& options,
                                    const plan::Plan& plan, const topology::Topology& cluster,
                                    runtime::JobOptions job, nlohmann::json& links) {
  std::optional<runtime::InterruptGuard> interrupts(std::in_place);
  const runtime::emulate::EmulatedNetwork network(
      plan_emulation(session, cluster, options.emulate, options.scale));
  const CheckedLinks checked = check_emulation(session, network, *interrupts);
  links = links_json(network.plan(), checked);
  if (interrupts->received() != 0) {
    runtime::JobResult result;
    result.reason = "interrupted while the emulated network was measured";
    result.exit_status = kSignalBase + interrupts->received();
    return result;
  }
  interrupts.reset();  // the job has its own
  job.listen = {runtime::emulate::kLeaderAddress, 0};
  job.place_worker = [&network](Rank rank, runtime::ChildCommand& command) {
    network.place(command, rank);
  };
  const runtime::emulate::InNamespace inside(network.management());
  return runtime::run_local_job(plan, job);
}

Duration heartbeat_timeout(const TrainOptions& options) {
  const Duration timeout = named("<command line>", "--heartbeat-timeout",
                                 [&] { return parse_duration(options.heartbeat_timeout); });
  if (timeout < scaled(kWatchfulHeartbeat, 2)) {
    throw ConfigError(
        ErrorContext{"<command line>", "--heartbeat-timeout", options.heartbeat_timeout,
                     "at least twice the period of heartbeats, " + to_string(kWatchfulHeartbeat)});
  }
  return timeout;
}

ContinuationOptions continuation_options(const TrainOptions& options) {
  ContinuationOptions result;
  if (options.on_loss == "continue") {
    result.survives_after = heartbeat_timeout(options);
  }
  if (options.watches()) {
    result.on_slow =
        options.on_slow == "replan" ? SlowWatch::Action::kReplan : SlowWatch::Action::kReport;
  }
  result.rate_scale = options.emulate.empty() ? 1 : options.scale;
  return result;
}

void require_local(const std::optional<runtime::LaunchEnvironment>& launch,
                   const std::string& option, const std::string& place) {
  if (launch.has_value()) {
    throw ConfigError(ErrorContext{"<command line>", option,
                                   "a process that " + launch->launcher + " started",
                                   "to start the workers itself" + place});
  }
}

void require_options(const TrainOptions& options) {
  require_transport(options.transport);
  if (!options.workload.empty() && options.calibration.empty() && !options.may_plan()) {
    throw ConfigError(ErrorContext{"<command line>", "--workload",
                                   "neither --calibration nor --on-loss continue nor --on-slow",
                                   "one of them, which need it"});
  }
  if (!options.state.empty() && options.on_loss == "stop") {
    throw ConfigError(ErrorContext{"<command line>", "--state", "--on-loss stop",
                                   "--on-loss continue beside it"});
  }
}

void require_workers(const TrainOptions& options, const plan::Plan& plan,
                     const std::optional<runtime::LaunchEnvironment>& launch) {
  if (!options.emulate.empty()) {
    require_local(launch, "--emulate", ", one in each emulated host");
  }
  if (!options.state.empty()) {
    require_local(launch, "--state", "");
  }
  if (!launch.has_value() && options.workers != 0 && options.workers != plan.rank_count()) {
    throw PlanError(ErrorContext{options.plan, "ranks",
                                 fmt::format("a plan for {} ranks", plan.rank_count()),
                                 fmt::format("one for --workers {}", options.workers)});
  }
}

runtime::JobOptions job_options_of(Session& session, const TrainOptions& options) {
  runtime::JobOptions job;
  job.training_file = training_file(options.training);
  job.training = read_file(job.training_file);
  session.add_input(job.training_file);
  if (options.steps > 0) {
    job.steps = options.steps;
  }
  if (options.has_seed) {
    job.seed = session.seed;
  } else {
    session.seed = trainer::read_training_config(options.training, topology::configs_folder()).seed;
  }
  job.checkpoint_folder = options.checkpoints;
  job.resume = options.resume;
  job.state_folder = options.state;
  job.transport = options.transport;
  job.token_file = options.token_file;
  if (!options.trace.empty()) {
    require_place(options.trace);
    session.add_output(options.trace);
    job.timeline_step = kTimelineStep;
  }
  job.on_worker_line = [&session](Rank rank, std::string_view line) {
    session.note(fmt::format("[rank {}] {}", rank.value(), line));
  };
  return job;
}

void report_failure(Session& session, const TrainOptions& options, const plan::Plan& plan,
                    const runtime::JobResult& job) {
  if (job.speaks) {
    report_error(RuntimeFailure(job.reason, {.file = options.plan,
                                             .where = "training",
                                             .found = job.reason,
                                             .expected = fmt::format("{} workers that train to "
                                                                     "the end",
                                                                     plan.rank_count())}),
                 session.json);
  }
  session.status = job.exit_status == kDone ? kNotMet : job.exit_status;
}

void run_train(Session& session, const TrainOptions& options) {
  require_options(options);
  const plan::Plan plan = plan::load_plan(options.plan);
  session.add_input(options.plan);
  const std::optional<runtime::LaunchEnvironment> launch =
      runtime::detect_launch(runtime::process_environment());
  require_workers(options, plan, launch);
  const bool is_emulated = !options.emulate.empty();
  const std::optional<topology::Topology> cluster = cluster_of(session, options, plan);
  const std::optional<sim::StepResult> predicted = predicted_step(session, options, plan);

  runtime::JobOptions job_options = job_options_of(session, options);
  std::optional<Continuation> continuation;
  if (options.may_plan()) {
    continuation.emplace(session, continuation_options(options), plan, cluster.value(),
                         workload_of(session, options, plan));
    continuation->attach(job_options);
  }
  TrainingProgress progress_bar(options.steps);
  job_options.on_progress = [&progress_bar](const runtime::JobProgress& progress) {
    progress_bar.update(progress);
  };
  nlohmann::json links;
  const runtime::JobResult job = named(options.plan, "", [&] {
    if (is_emulated) {
      return run_emulated_job(session, options, plan, cluster.value(), job_options, links);
    }
    return launch.has_value() ? runtime::run_launched_job(plan, job_options, *launch)
                              : runtime::run_local_job(plan, job_options);
  });
  progress_bar.finish();
  if (!job.ok) {
    report_failure(session, options, plan, job);
    return;
  }
  if (!job.is_leader) {
    return;
  }
  for (const std::string& note : notes_of(job)) {
    session.note("note: " + note);
  }
  const Summary summary = summarise(plan, job);
  // Bytes are those of the latest plan.
  const auto tiers = bytes_over_tiers(
      job, job.epochs.empty() ? cluster : continuation->cluster_of(job.epochs.back().seats));
  if (!options.trace.empty()) {
    write_trace(options.trace, plan, job, predicted);
  }
  if (session.json) {
    nlohmann::json result = run_json(plan, job, summary, predicted, tiers);
    if (continuation) {
      continuation->add_to(result, job);
    }
    if (is_emulated) {
      result["emulation"] = links;
    }
    session.print_json(result);
  } else {
    print_text(plan, job, summary, predicted, tiers);
    if (!options.trace.empty()) {
      fmt::print("wrote {} (open it at ui.perfetto.dev)\n", options.trace);
    }
  }
  const bool is_valid = !is_emulated || links.at("valid").get<bool>();
  session.status = summary.parameters_agree && is_valid ? kDone : kNotMet;
}

}  // namespace

void add_train_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("train", "Train a built-in model with exactly this plan");
  add_common_options(*command, session);
  const auto options = std::make_shared<TrainOptions>();
  command->add_option("plan", options->plan, "Plan file")->required();
  command
      ->add_option("--workers", options->workers,
                   "Local worker processes to start; must be the plan's number of ranks")
      ->check(CLI::Range(1, kMostWorkers));
  command
      ->add_option("--training", options->training,
                   "Training file (model, data, optimiser), or the name of a shipped one")
      ->capture_default_str();
  command->add_option("--steps", options->steps, "Steps to train, instead of the training file's")
      ->check(CLI::Range(1, kMostTrainingSteps));
  command->add_option("--checkpoints", options->checkpoints, "Folder for checkpoints");
  command->add_flag("--resume", options->resume, "Go on from the latest checkpoint there");
  command->add_option("--transport", options->transport, "Transport, see rackrail info")
      ->capture_default_str();
  command
      ->add_option("--on-loss", options->on_loss,
                   "When a worker is lost: stop (from the last checkpoint, --resume goes on), or "
                   "continue with the workers that are left and a new plan for them")
      ->check(CLI::IsMember({"stop", "continue"}))
      ->capture_default_str();
  command
      ->add_option("--on-slow", options->on_slow,
                   "When a link or a worker becomes slower than it was: ignore, report, or replan "
                   "and go on with the new plan; --json then has what was found and all step times")
      ->check(CLI::IsMember({"ignore", "report", "replan"}))
      ->capture_default_str();
  command
      ->add_option("--heartbeat-timeout", options->heartbeat_timeout,
                   "With --on-loss continue: silence after which a worker counts as lost")
      ->capture_default_str();
  command->add_option("--state", options->state,
                      "Folder for the state of the job: when this command is killed, its workers "
                      "wait a minute for the same command, which then takes them up");
  command->add_option("--calibration", options->calibration,
                      "File that 'rackrail calibrate' wrote: adds the prediction for this machine");
  command->add_option("--workload,--model", options->workload,
                      "Workload of the plan, where it is not a shipped one or has other compute "
                      "times: for --calibration, --on-loss and --on-slow");
  command->add_option("--cluster", options->cluster.cluster,
                      "Cluster of the plan, where it is not a shipped one");
  options->cluster.add_to(*command);
  command->add_option("--trace", options->trace, "Perfetto trace of one measured step to write");
  CLI::Option* emulate = command->add_option(
      "--emulate", options->emulate,
      "Cluster of the plan, whose network is built on this machine for the workers: see emulate");
  add_scale_option(*command, options->scale)->needs(emulate);
  command->add_option("--token-file", options->token_file,
                      "File with the job's secret; RACKRAIL_JOB_TOKEN by default");
  command->footer(
      "Examples: rackrail train plan.json --workers 4\n"
      "          mpirun -n 4 rackrail train plan.json\n"
      "          rackrail train plan.json --emulate two-racks-40g --scale 0.0125\n"
      "Under mpirun, srun, torchrun or with TF_CONFIG each process is one rank.\n"
      "Exit status besides 0, 1 and 2: 130 after SIGINT and 143 after SIGTERM (128 + signal).");
  CLI::Option* seed = command->get_option("--seed")->default_str("the training file's");
  command->callback([&session, options, seed] {
    session.command = "train";
    options->has_seed = seed->count() > 0;
    run_train(session, *options);
  });
}

}  // namespace rackrail::cli
