#include "cli/train_options.hpp"

#include <CLI/CLI.hpp>

#include "base/error.hpp"
#include "cli/emulation.hpp"
#include "cli/insecure_flag.hpp"
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
  command.add_option(
      "plan", plan,
      "Plan file. With --emulate it may be left out: a plan is made for the emulated network");
  command
      .add_option(
          "--workers", workers,
          "Start this many local workers: as many as the plan or the emulated cluster has ranks")
      ->check(CLI::Range(1, kMostWorkers));
  command
      .add_option("--training", training,
                  "Training file (model, data, optimiser), or the name of a shipped one")
      ->capture_default_str();
  command.add_option("--steps", steps, "Number of steps to train. Default: the training file's")
      ->check(CLI::Range(1, kMostTrainingSteps));
  synchrony.add_to(command);
  command.add_option("--checkpoints", checkpoints, "Folder for checkpoints");
  command.add_flag("--resume", resume, "Resume from the latest checkpoint in --checkpoints");
  command
      .add_option("--transport", transport, "Transport between workers; 'rackrail info' lists them")
      ->capture_default_str();
  gpu.add_to(command);
  command
      .add_option("--on-loss", on_loss,
                  "What to do when a worker is lost. stop: end; --resume continues from the last "
                  "checkpoint. continue: make a new plan for the others and go on. wait: start a "
                  "replacement or wait for one, and go on without it if none comes")
      ->check(CLI::IsMember({"stop", "continue", "wait"}))
      ->capture_default_str();
  command
      .add_option("--on-slow", on_slow,
                  "What to do when a link or a worker becomes slow: ignore, report, or replan "
                  "(make a new plan and go on with it)")
      ->check(CLI::IsMember({"ignore", "report", "replan"}))
      ->capture_default_str();
  CLI::Option* const noise_option = command.add_option(
      "--on-noise", on_noise,
      "What to do when another batch size is better by the measured noise scale and link rates: "
      "ignore, report, or rebatch (go on with it). Needs --on-slow report or replan");
  noise_option->check(CLI::IsMember({"ignore", "report", "rebatch"}))->capture_default_str();
  command
      .add_option(
          "--decide-every", noise.every,
          "With --on-noise: decide every so many steps. Three decisions in a row must agree")
      ->check(CLI::Range(1, kMostTrainingSteps))
      ->needs(noise_option)
      ->capture_default_str();
  command
      .add_option("--max-global-batch", noise.max_global_batch,
                  "With --on-noise: largest global batch of a step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{kMostTrainingSteps}))
      ->needs(noise_option);
  heartbeats.add_to(command);
  command
      .add_option("--replacement-timeout", replacement_timeout,
                  "With --on-loss wait: how long to wait for a replacement")
      ->capture_default_str();
  command.add_option("--state", state,
                     "Folder for the job's state. If this command is killed, its workers wait a "
                     "minute for the same command to take over");
  command.add_option("--calibration", calibration,
                     "File of 'rackrail calibrate': also predict the step time on this machine");
  command.add_option("--workload,--model", workload,
                     "Workload file of the plan; not needed for a shipped model");
  command.add_option("--cluster", cluster.cluster,
                     "Cluster file of the plan; not needed for a shipped cluster");
  cluster.add_to(command);
  command.add_option("--trace", trace,
                     "Trace of one measured step to write; open it at ui.perfetto.dev");
  CLI::Option* const emulate_option = command.add_option(
      "--emulate", emulate,
      "Build this cluster's network on this machine for the workers, see 'rackrail emulate'. "
      "Without a plan one is made for it, from costs measured here");
  add_scale_option(command, scale)->needs(emulate_option);
  command.add_option("--token-file", token_file,
                     "File with the job's secret. Default: RACKRAIL_JOB_TOKEN");
  add_insecure_flag(command);
  command.add_option("--listen", listen,
                     "host:port where 'rackrail job' reaches this job of local workers. Port 0: "
                     "any free port, which is printed");
  command.footer(
      "Examples: rackrail train plan.json --workers 4\n          mpirun -n 4 rackrail train "
      "plan.json\n          rackrail train plan.json --workers 4 --share-gpu\n          rackrail "
      "train plan.json --emulate two-racks-40g --scale 0.0125\n          rackrail train --emulate "
      "two-racks-40g --scale 0.0125 --steps 50\nUnder mpirun, srun, torchrun or with TF_CONFIG "
      "each process is one rank.\nRACKRAIL_TLS=FOLDER (ca.pem, cert.pem, key.pem) encrypts "
      "workers' and coordinator's messages\nwith mutual TLS. Exit status 130 after Ctrl-C (SIGINT) "
      "and 143 after SIGTERM.");
}

}  // namespace rackrail::cli
