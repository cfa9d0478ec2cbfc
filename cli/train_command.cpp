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
#include "cli/continuation.hpp"
#include "cli/emulation.hpp"
#include "cli/gpu_options.hpp"
#include "cli/heartbeat_options.hpp"
#include "cli/inputs.hpp"
#include "cli/local_prediction.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/synchrony_options.hpp"
#include "cli/training_report.hpp"
#include "plan/calibration.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/host_port.hpp"
#include "runtime/coordinator/job_token.hpp"
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
  GpuOptions gpu;
  std::string calibration;
  std::string workload;
  std::string trace;
  std::string token_file;
  std::string listen;
  std::string emulate;
  double scale = 1;
  std::string on_loss = "stop";
  std::string on_slow = "ignore";
  std::string on_noise = "ignore";
  BatchWatch::Options noise;
  std::string state;
  HeartbeatOptions heartbeats;
  std::string replacement_timeout = "60 s";
  SynchronyOptions synchrony;
  bool has_seed = false;  ///< whether it was said

  /// The option that has ranks measure their steps; empty: none has.
  std::string watches() const {
    return on_slow != "ignore"    ? "--on-slow " + on_slow
           : on_noise != "ignore" ? "--on-noise " + on_noise
                                  : "";
  }
  /// Whether the cluster and the workload are needed, to plan again.
  bool may_plan() const { return on_loss != "stop" || !watches().empty(); }
};

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

/// Plans that come later are for the cluster, too.
void emulate_later_plans(const emulate::NetworkPlan& network, runtime::JobOptions& job) {
  if (job.plan_for) {
    job.plan_for = [&network, plan_for = std::move(job.plan_for)](const std::vector<Rank>& left) {
      return emulate::emulated_plan(plan_for(left), network);
    };
  }
  if (job.on_measured) {
    job.on_measured =
        [&network, on_measured = std::move(job.on_measured)](const runtime::StepMeasurement& step) {
          auto better = on_measured(step);
          if (better) {
            better->plan = emulate::emulated_plan(std::move(better->plan), network);
          }
          return better;
        };
  }
  if (job.on_replan) {
    job.on_replan = [&network, on_replan = std::move(job.on_replan)] {
      auto offer = on_replan();
      if (offer.plan) {
        offer.plan = emulate::emulated_plan(*std::move(offer.plan), network);
      }
      return offer;
    };
  }
}

/// The job on the emulated network of the plan's cluster; its links, measured before, are left in
/// `links`. A job that was not started, because the user interrupted, has no workers.
runtime::JobResult run_emulated_job(Session& session, const plan::Plan& plan,
                                    const emulate::NetworkPlan& network_plan,
                                    runtime::JobOptions job, nlohmann::json& links) {
  std::optional<runtime::InterruptGuard> interrupts(std::in_place);
  const emulate::EmulatedNetwork network(network_plan);
  const CheckedLinks checked = check_emulation(session, network, *interrupts);
  links = links_json(network.plan(), checked);
  if (interrupts->received() != 0) {
    runtime::JobResult result;
    result.reason = "interrupted while the emulated network was measured";
    result.exit_status = kSignalBase + interrupts->received();
    return result;
  }
  interrupts.reset();  // the job has its own
  job.listen = {emulate::kLeaderAddress, 0};
  job.place_worker = [&network](Rank rank, runtime::ChildCommand& command) {
    network.place(command, rank);
  };
  emulate_later_plans(network.plan(), job);
  const emulate::InNamespace inside(network.management());
  return runtime::run_local_job(emulate::emulated_plan(plan, network.plan()), job);
}

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

void require_local(const std::optional<runtime::LaunchEnvironment>& launch,
                   const std::string& option, const std::string& place) {
  if (launch.has_value()) {
    throw ConfigError(ErrorContext{"<command line>", option,
                                   "a process that " + launch->launcher + " started",
                                   "to start the workers itself" + place});
  }
}

/// Somebody can ask the job's coordinator where --listen has it.
void require_askable(const TrainOptions& options) {
  runtime::parse_host_port(options.listen, "--listen");
  if (!options.emulate.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "--listen", "--emulate",
                                   "one of them: an emulated network has addresses of its own"});
  }
  if (runtime::read_job_token(options.token_file).empty()) {
    throw ConfigError(ErrorContext{"<command line>", "--listen", "a job without a token",
                                   "RACKRAIL_JOB_TOKEN or --token-file: only who has the token "
                                   "is answered"});
  }
}

/// Options that need each other, and those that a launched process cannot have.
void require_consistent(const TrainOptions& options,
                        const std::optional<runtime::LaunchEnvironment>& launch) {
  require_transport(options.transport);
  options.synchrony.require_consistent(options.watches());
  if (!options.workload.empty() && options.calibration.empty() && !options.may_plan()) {
    throw ConfigError(ErrorContext{"<command line>", "--workload",
                                   "neither --calibration nor --on-loss continue or wait nor "
                                   "--on-slow nor --on-noise",
                                   "one of them, which need it"});
  }
  if (!options.state.empty() && options.on_loss == "stop") {
    throw ConfigError(ErrorContext{"<command line>", "--state", "--on-loss stop",
                                   "--on-loss continue or wait beside it"});
  }
  if (options.gpu.on_gpu() && !options.synchrony.synchrony().is_synchronous()) {
    throw ConfigError(ErrorContext{
        "<command line>", options.synchrony.mode == "async" ? "--mode async" : "--local-steps",
        "--device cuda", "--device cpu: on GPUs all gradients of a step are summed"});
  }
  if (options.gpu.on_gpu() && !options.watches().empty()) {
    throw ConfigError(ErrorContext{"<command line>", options.watches(), "--device cuda",
                                   "--device cpu: traffic between GPUs is not measured"});
  }
  if (!options.emulate.empty()) {
    require_local(launch, "--emulate", ", one in each emulated host");
  }
  if (!options.state.empty()) {
    require_local(launch, "--state", "");
  }
  if (!options.listen.empty()) {
    require_local(launch, "--listen", ": a launcher says where rank 0 listens");
    require_askable(options);
  }
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

void report_failure(Session& session, const TrainOptions& options, const plan::Plan& plan,
                    const runtime::JobResult& job) {
  if (job.speaks) {
    report_error(
        RuntimeFailure(job.reason, {.file = options.plan,
                                    .where = "training",
                                    .found = job.reason,
                                    .expected = fmt::format("{} workers that train to the end",
                                                            plan.rank_count())}),
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
    session.print_json(result);
  } else {
    fmt::print("{}", training_text(plan, job, summary, predicted, tiers));
    if (!options.trace.empty()) {
      fmt::print("wrote {} (open it at ui.perfetto.dev)\n", options.trace);
    }
  }
  const bool is_valid = links.is_null() || links.at("valid").get<bool>();
  session.status = summary.parameters_agree && is_valid ? kDone : kNotMet;
}

void run_train(Session& session, const TrainOptions& options) {
  const std::optional<runtime::LaunchEnvironment> launch =
      runtime::detect_launch(runtime::process_environment());
  require_consistent(options, launch);
  const plan::Plan plan = plan::load_plan(options.plan);
  session.add_input(options.plan);
  if (!launch.has_value() && options.workers != 0 && options.workers != plan.rank_count()) {
    throw PlanError(ErrorContext{options.plan, "ranks",
                                 fmt::format("a plan for {} ranks", plan.rank_count()),
                                 fmt::format("one for --workers {}", options.workers)});
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
  TrainingProgress progress_bar(options.steps);
  job_settings.on_progress = [&progress_bar](const runtime::JobProgress& progress) {
    progress_bar.update(progress);
  };
  nlohmann::json links;
  const runtime::JobResult job = named(options.plan, "", [&] {
    if (network) {
      return run_emulated_job(session, plan, *network, job_settings, links);
    }
    return launch.has_value() ? runtime::run_launched_job(plan, job_settings, *launch)
                              : runtime::run_local_job(plan, job_settings);
  });
  progress_bar.finish();
  if (!job.ok) {
    report_failure(session, options, plan, job);
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
  options->synchrony.add_to(*command);
  command->add_option("--checkpoints", options->checkpoints, "Folder for checkpoints");
  command->add_flag("--resume", options->resume, "Go on from the latest checkpoint there");
  command->add_option("--transport", options->transport, "Transport, see rackrail info")
      ->capture_default_str();
  options->gpu.add_to(*command);
  command
      ->add_option(
          "--on-loss", options->on_loss,
          "When a worker is lost: stop (from the last checkpoint, --resume goes on), "
          "continue with the workers that are left and a new plan for them, or wait for "
          "another worker in its place (local workers are started again) and continue "
          "without when none comes; one that comes later joins in both cases. With wait and "
          "--checkpoints, when nobody is left who has the parameters, those who come go on "
          "from the last checkpoint")
      ->check(CLI::IsMember({"stop", "continue", "wait"}))
      ->capture_default_str();
  command
      ->add_option("--on-slow", options->on_slow,
                   "When a link or a worker becomes slower than it was: ignore, report, or replan "
                   "and go on with the new plan; --json then has what was found and all step times")
      ->check(CLI::IsMember({"ignore", "report", "replan"}))
      ->capture_default_str();
  CLI::Option* const on_noise = command->add_option(
      "--on-noise", options->on_noise,
      "When another batch is better by the noise scale of the gradients and the rates "
      "of links, both as measured now: ignore, report, or rebatch and go on with it, "
      "for as many samples; with --on-slow report at least. --json then has what was "
      "decided and the batches");
  on_noise->check(CLI::IsMember({"ignore", "report", "rebatch"}))->capture_default_str();
  command
      ->add_option(
          "--decide-every", options->noise.every,
          "With --on-noise: steps from one decision to the next; three in a row must agree")
      ->check(CLI::Range(1, kMostTrainingSteps))
      ->needs(on_noise)
      ->capture_default_str();
  command
      ->add_option("--max-global-batch", options->noise.max_global_batch,
                   "With --on-noise: largest batch of a step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{kMostTrainingSteps}))
      ->needs(on_noise);
  options->heartbeats.add_to(*command);
  command
      ->add_option("--replacement-timeout", options->replacement_timeout,
                   "With --on-loss wait: how long to wait")
      ->capture_default_str();
  command->add_option("--state", options->state,
                      "Folder for the state of the job: when this command is killed, its workers "
                      "wait a minute for the same command, which then takes them up");
  command->add_option(
      "--calibration", options->calibration,
      "File that 'rackrail calibrate' wrote: adds the prediction for this machine, and "
      "with --emulate for the network on it");
  command->add_option("--workload,--model", options->workload,
                      "Workload of the plan, where it is not a shipped one or has other compute "
                      "times: for --calibration, --on-loss, --on-slow and --on-noise");
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
  command->add_option("--listen", options->listen,
                      "Local workers: host:port where 'rackrail job' finds this job, by its token; "
                      "port 0: any, which is said");
  command->footer(
      "Examples: rackrail train plan.json --workers 4\n"
      "          mpirun -n 4 rackrail train plan.json\n"
      "          rackrail train plan.json --workers 4 --share-gpu\n"
      "          rackrail train plan.json --emulate two-racks-40g --scale 0.0125\n"
      "Under mpirun, srun, torchrun or with TF_CONFIG each process is one rank.\n"
      "RACKRAIL_TLS=FOLDER (ca.pem, cert.pem, key.pem) has workers and coordinator talk over "
      "mutual TLS.\n"
      "Exit status besides 0, 1 and 2: 130 after SIGINT and 143 after SIGTERM (128 + signal).");
  CLI::Option* seed = command->get_option("--seed")->default_str("the training file's");
  command->callback([&session, options, seed] {
    session.command = "train";
    options->has_seed = seed->count() > 0;
    run_train(session, *options);
  });
}

}  // namespace rackrail::cli
