#include "cli/train_options.hpp"

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "cli/emulation.hpp"
#include "runtime/coordinator/host_port.hpp"
#include "runtime/coordinator/job_token.hpp"

namespace rackrail::cli {

namespace {

constexpr int kMostWorkers = 65'536;
constexpr int kMostTrainingSteps = 1'000'000'000;

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

/// A plan file may be missing only where one is made for an emulated network, and not with what
/// goes by a plan that is there before, or needs another one than would be made.
void require_plan(const TrainOptions& options) {
  if (!options.plan.empty()) {
    return;
  }
  if (options.emulate.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "plan", "none",
                                   "a plan file, or --emulate with a cluster for whose network one "
                                   "is made"});
  }
  const std::string needs_it = options.on_loss != "stop"           ? "--on-loss " + options.on_loss
                               : options.may_plan()                ? options.watches()
                               : options.resume                    ? "--resume"
                               : !options.cluster.cluster.empty()  ? "--cluster"
                               : options.synchrony.mode == "async" ? "--mode async"
                               : options.gpu.on_gpu()              ? "--device cuda"
                                                                   : "";
  if (!needs_it.empty()) {
    throw ConfigError(ErrorContext{"<command line>", needs_it, "no plan",
                                   "a plan file (rackrail plan): one that is made for the emulated "
                                   "network is of no use for it"});
  }
}

}  // namespace

void TrainOptions::require_consistent(
    const std::optional<runtime::LaunchEnvironment>& launch) const {
  require_plan(*this);
  require_transport(transport);
  synchrony.require_consistent(watches());
  if (!workload.empty() && calibration.empty() && !may_plan() && !plan.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "--workload",
                                   "neither --calibration nor --on-loss continue or wait nor "
                                   "--on-slow nor --on-noise",
                                   "one of them, which need it"});
  }
  if (!state.empty() && on_loss == "stop") {
    throw ConfigError(ErrorContext{"<command line>", "--state", "--on-loss stop",
                                   "--on-loss continue or wait beside it"});
  }
  if (gpu.on_gpu() && !synchrony.synchrony().is_synchronous()) {
    throw ConfigError(
        ErrorContext{"<command line>", synchrony.mode == "async" ? "--mode async" : "--local-steps",
                     "--device cuda", "--device cpu: on GPUs all gradients of a step are summed"});
  }
  if (gpu.on_gpu() && !watches().empty()) {
    throw ConfigError(ErrorContext{"<command line>", watches(), "--device cuda",
                                   "--device cpu: traffic between GPUs is not measured"});
  }
  if (!emulate.empty()) {
    require_local(launch, "--emulate", ", one in each emulated host");
  }
  if (!state.empty()) {
    require_local(launch, "--state", "");
  }
  if (!listen.empty()) {
    require_local(launch, "--listen", ": a launcher says where rank 0 listens");
    require_askable(*this);
  }
}

void TrainOptions::add_to(CLI::App& command) {
  command.add_option("plan", plan,
                     "Plan file; with --emulate it may be left out: then a plan is made for the "
                     "network as it is here");
  command
      .add_option("--workers", workers,
                  "Local worker processes to start; must be the plan's number of ranks, or the "
                  "emulated cluster's")
      ->check(CLI::Range(1, kMostWorkers));
  command
      .add_option("--training", training,
                  "Training file (model, data, optimiser), or the name of a shipped one")
      ->capture_default_str();
  command.add_option("--steps", steps, "Steps to train, instead of the training file's")
      ->check(CLI::Range(1, kMostTrainingSteps));
  synchrony.add_to(command);
  command.add_option("--checkpoints", checkpoints, "Folder for checkpoints");
  command.add_flag("--resume", resume, "Go on from the latest checkpoint there");
  command.add_option("--transport", transport, "Transport, see rackrail info")
      ->capture_default_str();
  gpu.add_to(command);
  command
      .add_option(
          "--on-loss", on_loss,
          "When a worker is lost: stop (from the last checkpoint, --resume goes on), "
          "continue with the workers that are left and a new plan for them, or wait for "
          "another worker in its place (local workers are started again) and continue "
          "without when none comes; one that comes later joins in both cases. With wait and "
          "--checkpoints, when nobody is left who has the parameters, those who come go on "
          "from the last checkpoint")
      ->check(CLI::IsMember({"stop", "continue", "wait"}))
      ->capture_default_str();
  command
      .add_option("--on-slow", on_slow,
                  "When a link or a worker becomes slower than it was: ignore, report, or replan "
                  "and go on with the new plan; --json then has what was found and all step times")
      ->check(CLI::IsMember({"ignore", "report", "replan"}))
      ->capture_default_str();
  CLI::Option* const noise_option = command.add_option(
      "--on-noise", on_noise,
      "When another batch is better by the noise scale of the gradients and the rates "
      "of links, both as measured now: ignore, report, or rebatch and go on with it, "
      "for as many samples; with --on-slow report at least. --json then has what was "
      "decided and the batches");
  noise_option->check(CLI::IsMember({"ignore", "report", "rebatch"}))->capture_default_str();
  command
      .add_option("--decide-every", noise.every,
                  "With --on-noise: steps from one decision to the next; three in a row must agree")
      ->check(CLI::Range(1, kMostTrainingSteps))
      ->needs(noise_option)
      ->capture_default_str();
  command
      .add_option("--max-global-batch", noise.max_global_batch,
                  "With --on-noise: largest batch of a step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{kMostTrainingSteps}))
      ->needs(noise_option);
  heartbeats.add_to(command);
  command
      .add_option("--replacement-timeout", replacement_timeout,
                  "With --on-loss wait: how long to wait")
      ->capture_default_str();
  command.add_option("--state", state,
                     "Folder for the state of the job: when this command is killed, its workers "
                     "wait a minute for the same command, which then takes them up");
  command.add_option(
      "--calibration", calibration,
      "File that 'rackrail calibrate' wrote: adds the prediction for this machine, and "
      "with --emulate for the network on it");
  command.add_option("--workload,--model", workload,
                     "Workload of the plan, where it is not a shipped one or has other compute "
                     "times: for --calibration, --on-loss, --on-slow and --on-noise, and to plan "
                     "where there is no plan");
  command.add_option("--cluster", cluster.cluster,
                     "Cluster of the plan, where it is not a shipped one");
  cluster.add_to(command);
  command.add_option("--trace", trace, "Perfetto trace of one measured step to write");
  CLI::Option* const emulate_option = command.add_option(
      "--emulate", emulate,
      "Cluster of the plan, whose network is built on this machine for the workers: see emulate. "
      "Without a plan, what the model and messages cost is measured in it (but for what "
      "--calibration and --workload say), a plan is made, and the predicted step stands beside the "
      "measured one; links and sizes of collectives are held against predictions by validate");
  add_scale_option(command, scale)->needs(emulate_option);
  command.add_option("--token-file", token_file,
                     "File with the job's secret; RACKRAIL_JOB_TOKEN by default");
  command.add_option("--listen", listen,
                     "Local workers: host:port where 'rackrail job' finds this job, by its token; "
                     "port 0: any, which is said");
  command.footer(
      "Examples: rackrail train plan.json --workers 4\n"
      "          mpirun -n 4 rackrail train plan.json\n"
      "          rackrail train plan.json --workers 4 --share-gpu\n"
      "          rackrail train plan.json --emulate two-racks-40g --scale 0.0125\n"
      "          rackrail train --emulate two-racks-40g --scale 0.0125 --steps 50\n"
      "Under mpirun, srun, torchrun or with TF_CONFIG each process is one rank.\n"
      "RACKRAIL_TLS=FOLDER (ca.pem, cert.pem, key.pem) has workers and coordinator talk over "
      "mutual TLS.\n"
      "Exit status besides 0, 1 and 2: 130 after SIGINT and 143 after SIGTERM (128 + signal).");
}

}  // namespace rackrail::cli
