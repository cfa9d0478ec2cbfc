#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/comparison.hpp"
#include "cli/continuation.hpp"
#include "cli/emulated_training.hpp"
#include "cli/emulation.hpp"
#include "cli/inputs.hpp"
#include "cli/local_prediction.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/train_options.hpp"
#include "cli/training_report.hpp"
#include "plan/calibration.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/host_port.hpp"
#include "runtime/emulate/emulated_plan.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/transport.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

namespace emulate = runtime::emulate;

constexpr std::uint32_t kTimelineStep = 10;

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
          fmt::format("--cluster with the file that the plan was made for: {} plans again with it",
                      options.watches().empty() ? "--on-loss" : options.watches())});
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
  const std::string source = workload_of_plan(plan, options.plan, options.workload);
  plan::Workload workload = load_workload(session, source);
  if (workload.digest() != plan.workload_digest) {
    throw PlanError(ErrorContext{options.plan, "workload_digest",
                                 fmt::format("a plan for model '{}'", plan.workload_name),
                                 fmt::format("one for the model of '{}'", source)});
  }
  return workload;
}

/// Where the plan is executed: on `network`, if there is one, or among workers of this machine.
std::optional<TrainingPrediction> prediction_of(
    Session& session, const TrainOptions& options, const plan::Plan& plan,
    const topology::Topology* cluster, const std::optional<emulate::NetworkPlan>& network) {
  if (options.calibration.empty()) {
    return std::nullopt;
  }
  const plan::Calibration calibration = plan::read_calibration(options.calibration);
  session.add_input(options.calibration);
  const plan::Workload workload = workload_of(session, options, plan);
  const auto predict = [&](const plan::Plan& moved, const topology::Topology& machine) {
    return predict_training(moved, workload, machine, calibration, options.synchrony.synchrony());
  };
  if (network) {
    const topology::Topology machine = machine_as_network(*cluster, *network, calibration);
    return predict(emulate::emulated_plan(plan, *network, machine), machine);
  }
  const topology::Topology machine = local_machine(calibration, plan.rank_count());
  return predict(on_other_topology(plan, machine), machine);
}

/// A progress bar over steps; the callback comes from another thread.
class TrainingProgress {
 public:
  /// Shows nothing before the first update, as what comes before the training has bars of its own.
  /// Nor has it a thread before: NCCL needs an environment that only a process without threads
  /// sets.
  TrainingProgress(std::int64_t steps, Elsewhere elsewhere)
      : steps_(steps), elsewhere_(elsewhere) {}

  void update(const runtime::JobProgress& progress) {
    const std::lock_guard lock(mutex_);
    if (!bar_) {
      bar_.emplace("training", elsewhere_);
    }
    if (progress.joined < progress.world_size) {
      bar_->update(0,
                   fmt::format("{} of {} workers are here", progress.joined, progress.world_size));
      return;
    }
    const double share =
        steps_ > 0 ? static_cast<double>(progress.step) / static_cast<double>(steps_) : 0;
    bar_->update(share, fmt::format("step {}, loss {:.4f}, {} per step", progress.step,
                                    progress.loss, to_string(progress.step_time)));
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    bar_.reset();
  }

 private:
  std::mutex mutex_;
  std::int64_t steps_;
  Elsewhere elsewhere_;
  std::optional<ProgressBar> bar_;
};

ContinuationOptions continuation_options(const TrainOptions& options) {
  ContinuationOptions result;
  result.survives_losses = options.on_loss != "stop";
  if (options.on_loss == "wait") {
    result.replacement_deadline = named("<command line>", "--replacement-timeout", [&] {
      return parse_duration(options.replacement_timeout);
    });
  }
  if (!options.watches().empty()) {  // a batch goes by the rates that are found, too
    result.on_slow =
        options.on_slow == "replan" ? SlowWatch::Action::kReplan : SlowWatch::Action::kReport;
  }
  if (options.on_noise != "ignore") {
    result.on_noise = options.noise;
    result.on_noise->action =
        options.on_noise == "rebatch" ? BatchWatch::Action::kRebatch : BatchWatch::Action::kReport;
  }
  result.rate_scale = options.emulate.empty() ? 1 : options.scale;
  result.has_servers = options.synchrony.synchrony().staleness.has_value();
  result.is_on_gpus = options.gpu.on_gpu();
  return result;
}

/// NCCL's groups are the hosts of the cluster.
std::optional<runtime::GpuSettings> gpu_settings(const TrainOptions& options,
                                                 const std::optional<topology::Topology>& cluster) {
  std::vector<std::vector<Rank>> hosts;
  if (cluster) {
    for (const topology::RankGroup& host : topology::ranks_by_host(*cluster)) {
      hosts.push_back(host.ranks);
    }
  }
  return options.gpu.settings(std::move(hosts));
}

/// What the options say of the job itself; the seed is left in the session.
runtime::JobOptions job_options(Session& session, const TrainOptions& options) {
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
  job.synchrony = options.synchrony.synchrony();
  job.checkpoint_folder = options.checkpoints;
  job.resume = options.resume;
  job.state_folder = options.state;
  job.transport = options.transport;
  job.token_file = options.token_file;
  if (!options.listen.empty()) {
    job.listen = runtime::parse_host_port(options.listen, "--listen");
    job.on_listening = [&session](const runtime::HostPort& address) {
      session.note(fmt::format("note: 'rackrail job status {}' says how it goes",
                               runtime::to_string(address)));
    };
  }
  if (!options.trace.empty()) {
    require_place(options.trace);
    session.add_output(options.trace);
    job.timeline_step = kTimelineStep;
  }
  const Heartbeats heartbeats = options.heartbeats.heartbeats(options.on_loss != "stop");
  job.heartbeat_period = heartbeats.period;
  job.heartbeat_timeout = heartbeats.timeout;
  job.on_worker_line = [&session](Rank rank, std::string_view line) {
    session.note(fmt::format("[rank {}] {}", rank.value(), line));
  };
  return job;
}

/// `source`: file of the plan, or of what one was made for.
void report_failure(Session& session, const std::string& source, std::size_t ranks,
                    const runtime::JobResult& job) {
  if (job.speaks) {
    report_error(RuntimeFailure(job.reason, {.file = source,
                                             .where = "training",
                                             .found = job.reason,
                                             .expected = fmt::format(
                                                 "{} workers that train to the end", ranks)}),
                 session.json);
  }
  session.status = job.exit_status == kDone ? kNotMet : job.exit_status;
}

TrainingNetwork network_of(const TrainOptions& options,
                           const std::optional<runtime::LaunchEnvironment>& launch,
                           const std::optional<topology::Topology>& cluster) {
  if (!options.emulate.empty()) {
    return TrainingNetwork::kEmulated;
  }
  if (launch.has_value()) {
    return TrainingNetwork::kLaunchers;
  }
  const bool has_network = cluster && topology::ranks_by_host(*cluster).size() > 1;
  return has_network ? TrainingNetwork::kThisMachine : TrainingNetwork::kUnknown;
}

/// `links`: of the emulated network, or null.
void report_training(Session& session, const TrainOptions& options, const plan::Plan& plan,
                     const runtime::JobResult& job, TrainingNetwork network,
                     const std::optional<topology::Topology>& cluster,
                     const std::optional<Continuation>& continuation,
                     const std::optional<TrainingPrediction>& predicted,
                     const nlohmann::json& links) {
  for (const std::string& note : notes_of(job)) {
    session.note("note: " + note);
  }
  TrainingSummary summary = summarise(plan, job, options.synchrony.synchrony());
  summary.network = network;
  if (options.on_noise != "ignore") {  // the only estimate that knows of other batches
    summary.noise_scale = continuation->noise_scale();
  }
  // Bytes are those of the latest plan.
  const auto tiers = bytes_over_tiers(
      job, job.epochs.empty() ? cluster : continuation->cluster_of(job.epochs.back().seats));
  if (!options.trace.empty()) {
    write_training_trace(options.trace, plan, job, predicted);
  }
  if (session.json) {
    nlohmann::json result = training_json(plan, job, summary, predicted, tiers);
    if (continuation) {
      continuation->add_to(result, job);
    }
    if (!links.is_null()) {
      result["emulation"] = links;
    }
    if (options.plan.empty() && !summary.losses.empty()) {
      result["step"] =
          to_json(Compared{.what = "step of " + plan.workload_name,
                           .how = plan.schedules.empty() ? "" : plan.schedules.front().name(),
                           .predicted = predicted.value().step_time,
                           .measured = summary.step_time});
    }
    session.print_json(result);
  } else {
    fmt::print("{}", training_text(plan, job, summary, predicted, tiers));
    if (!options.trace.empty()) {
      fmt::print("wrote {} (open it at ui.perfetto.dev)\n", options.trace);
    }
  }
  const bool is_valid = links.is_null() || links.at("valid").get<bool>();
  const bool is_right = summary.parameters_agree && !summary.diverged_at.has_value() && is_valid;
  session.status = is_right ? kDone : kNotMet;
}

/// The workers of a job as --workers asks for them; `found`: what is there, for so many ranks.
void require_workers(const TrainOptions& options, const std::string& file, const char* found,
                     std::size_t ranks) {
  if (options.workers != 0 && options.workers != ranks) {
    throw PlanError(ErrorContext{file, "ranks", fmt::format("{} {} ranks", found, ranks),
                                 fmt::format("one for --workers {}", options.workers)});
  }
}

/// Plans for the emulated network first.
void train_without_plan(Session& session, const TrainOptions& options) {
  ClusterOptions source = options.cluster;
  source.cluster = options.emulate;
  const topology::Topology cluster = source.load(session);
  require_two_ranks(cluster, options.emulate);
  require_workers(options, options.emulate, "a cluster of", cluster.rank_count());
  const emulate::NetworkPlan network =
      plan_emulation(session, cluster, options.emulate, options.scale);
  runtime::JobOptions job_settings = job_options(session, options);
  TrainingProgress progress_bar(options.steps, session.progress_elsewhere());
  job_settings.on_progress = [&progress_bar](const runtime::JobProgress& progress) {
    progress_bar.update(progress);
  };
  const PlannedJob planned = named(options.emulate, "", [&] {
    return run_planned_job(session, cluster, network,
                           {.training = options.training,
                            .calibration = options.calibration,
                            .workload = options.workload,
                            .synchrony = options.synchrony.synchrony()},
                           job_settings);
  });
  progress_bar.finish();
  if (!planned.job.result.ok) {
    report_failure(session, options.emulate, cluster.rank_count(), planned.job.result);
    return;
  }
  report_training(session, options, planned.plan, planned.job.result, TrainingNetwork::kEmulated,
                  cluster, std::nullopt, planned.predicted, planned.job.links);
}

void run_train(Session& session, const TrainOptions& options) {
  const std::optional<runtime::LaunchEnvironment> launch =
      runtime::detect_launch(runtime::process_environment());
  options.require_consistent(launch);
  if (options.plan.empty()) {
    train_without_plan(session, options);
    return;
  }
  const plan::Plan plan = plan::load_plan(options.plan);
  session.add_input(options.plan);
  if (!launch.has_value()) {
    require_workers(options, options.plan, "a plan for", plan.rank_count());
  }
  if (options.on_noise != "ignore" && plan.batch.local_batch.empty()) {
    throw PlanError(ErrorContext{options.plan, "batch", "no local batches",
                                 "some, for --on-noise to hold others against"});
  }
  const bool has_rates = std::any_of(plan.schedules.begin(), plan.schedules.end(),
                                     [](const auto& schedule) { return schedule.has_rates(); });
  if (has_rates && options.gpu.on_gpu()) {
    session.note(
        "note: routes of this plan have rates, to which gradients on GPUs are not held: steps take "
        "longer than predicted; plan with --route-rates never");
  }
  const std::optional<topology::Topology> cluster = cluster_of(session, options, plan);
  std::optional<emulate::NetworkPlan> network;
  if (!options.emulate.empty()) {
    network = plan_emulation(session, cluster.value(), options.emulate, options.scale);
  }
  const std::optional<TrainingPrediction> predicted =
      prediction_of(session, options, plan, cluster ? &*cluster : nullptr, network);

  runtime::JobOptions job_settings = job_options(session, options);
  job_settings.gpu = gpu_settings(options, cluster);
  std::optional<Continuation> continuation;
  if (options.may_plan()) {
    continuation.emplace(session, continuation_options(options), plan, cluster.value(),
                         workload_of(session, options, plan));
    continuation->attach(job_settings);
  }
  const bool is_first = !launch.has_value() || launch->rank == Rank(0);
  TrainingProgress progress_bar(options.steps,
                                is_first ? session.progress_elsewhere() : Elsewhere::kNothing);
  job_settings.on_progress = [&progress_bar](const runtime::JobProgress& progress) {
    progress_bar.update(progress);
  };
  nlohmann::json links;
  const runtime::JobResult job = named(options.plan, "", [&] {
    if (network) {
      EmulatedJob emulated = run_emulated_job(session, plan, *network, job_settings);
      links = std::move(emulated.links);
      return std::move(emulated.result);
    }
    return launch.has_value() ? runtime::run_launched_job(plan, job_settings, *launch)
                              : runtime::run_local_job(plan, job_settings);
  });
  progress_bar.finish();
  if (!job.ok) {
    report_failure(session, options.plan, plan.rank_count(), job);
  } else if (job.is_leader) {
    report_training(session, options, plan, job, network_of(options, launch, cluster), cluster,
                    continuation, predicted, links);
  }
}

}  // namespace

void add_train_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("train", "Train a built-in model with exactly this plan");
  add_common_options(*command, session);
  const auto options = std::make_shared<TrainOptions>();
  options->add_to(*command);
  CLI::Option* seed = command->get_option("--seed")->default_str("the training file's");
  command->callback([&session, options, seed] {
    session.command = "train";
    options->has_seed = seed->count() > 0;
    run_train(session, *options);
  });
}

}  // namespace rackrail::cli
