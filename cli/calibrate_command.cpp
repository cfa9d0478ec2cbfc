#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "plan/calibration.hpp"
#include "plan/codec.hpp"
#include "plan/codec_errors.hpp"
#include "runtime/microbenchmark.hpp"
#include "runtime/trainer/profile.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

constexpr int kMostSamplesTimed = 1'000'000;

struct CalibrateOptions {
  std::size_t workers = 4;
  std::string transport = "ucx";
  std::string training = "digits-mlp";
  std::int64_t local_batch = 32;
  std::string output = "machine.json";
  std::string workload_output;
  std::vector<std::string> codecs;
};

std::vector<plan::Codec> further_codecs(const CalibrateOptions& options) {
  std::vector<plan::Codec> codecs;
  for (const std::string& text : options.codecs) {
    codecs.push_back(named("<command line>", "--codec", [&] { return plan::parse_codec(text); }));
  }
  return codecs;
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

struct MeasuredHere {
  plan::Calibration calibration;
  plan::Workload workload;  ///< only where it was asked for
};

MeasuredHere measure(const Session& session, const CalibrateOptions& options,
                     const trainer::TrainingConfig& config,
                     const std::vector<plan::Codec>& codecs) {
  ProgressBar bar("measuring", session.progress_elsewhere());
  const double stages = options.workload_output.empty() ? 2 : 3;
  MeasuredHere measured;
  plan::Calibration& calibration = measured.calibration;
  calibration.load = load_average();
  calibration.cores = std::max(1U, std::thread::hardware_concurrency());
  calibration.transport = options.transport;
  bar.update(0, "codecs");
  calibration.rates = runtime::measure_codec_rates();
  bar.update(1 / stages, "messages");
  const runtime::MessageCosts costs =
      runtime::measure_message_costs(options.transport, options.workers, calibration.rates);
  calibration.core_bandwidth = costs.core_bandwidth;
  calibration.message_overhead = costs.message_overhead;
  calibration.latency = costs.latency;
  if (!options.workload_output.empty()) {
    bar.update(2 / stages, "the model");
    measured.workload =
        trainer::profile_training(config,
                                  {.local_batch = options.local_batch,
                                   .codecs = codecs,
                                   .others = static_cast<std::size_t>(options.workers) - 1},
                                  trainer::ProfileClock::kThreadCpu);
  }
  return measured;
}

void run_calibrate(Session& session, const CalibrateOptions& options) {
  require_transport(options.transport);
  const std::vector<plan::Codec> codecs = further_codecs(options);
  const trainer::TrainingConfig config =
      trainer::read_training_config(options.training, topology::configs_folder());
  if (!options.workload_output.empty() && std::filesystem::exists(options.training)) {
    session.add_input(options.training);
  }
  for (const std::string& output : {options.output, options.workload_output}) {
    if (!output.empty()) {
      require_place(output);
      session.add_output(output);
    }
  }
  const auto [calibration, workload] = measure(session, options, config, codecs);
  write_file_atomically(options.output, to_json(calibration));
  if (!options.workload_output.empty()) {
    write_file_atomically(options.workload_output, plan::to_yaml(workload));
  }
  if (session.json) {
    nlohmann::json result = nlohmann::json::parse(to_json(calibration));
    result["output"] = options.output;
    result["workload_output"] = options.workload_output;
    result["codec_errors"] = workload.codec_errors;
    result["codec_error_formulas"] = nlohmann::json::object();
    for (const auto& [codec, error] : workload.codec_errors) {
      result["codec_error_formulas"][codec] = plan::relative_error(plan::parse_codec(codec));
    }
    session.print_json(result);
    return;
  }
  Table table({{"on one of " + std::to_string(calibration.cores) + " cores"}, {"", Align::kRight}});
  table.add_row({"messages over " + options.transport, to_string(calibration.core_bandwidth)});
  table.add_row({"per message", to_string(calibration.message_overhead)});
  table.add_row({"latency", to_string(calibration.latency)});
  for (const plan::Codec& codec : plan::all_codecs()) {
    if (codec.is_lossy()) {
      const auto& rate = calibration.rates.codecs[static_cast<std::size_t>(codec.kind)];
      table.add_row({plan::to_string(codec) + " encode / decode",
                     to_string(rate.encode) + " / " + to_string(rate.decode)});
    }
  }
  table.add_row({"adding", to_string(calibration.rates.reduce)});
  if (!options.workload_output.empty()) {
    table.add_row({workload.name + ", batch " + std::to_string(workload.profiled_batch),
                   to_string(workload.forward + workload.backward() + workload.optimizer)});
    for (const auto& [codec, error] : workload.codec_errors) {
      table.add_row({codec + ", relative error of its gradients (by the shipped table)",
                     fmt::format("{:.2g} ({:.2g})", error,
                                 plan::usual_error(plan::parse_codec(codec)).error)});
    }
  }
  fmt::print("{}wrote {}\n", table.to_string(), options.output);
  if (!options.workload_output.empty()) {
    fmt::print("wrote {}\n", options.workload_output);
  }
}

}  // namespace

void add_calibrate_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "Measure what messages, codecs and a built-in model cost on this machine");
  add_common_options(*command, session);
  const auto options = std::make_shared<CalibrateOptions>();
  command
      ->add_option("--workers", options->workers, "Number of workers that will share the machine")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  command
      ->add_option("--transport", options->transport,
                   "Transport to measure; 'rackrail info' lists them")
      ->capture_default_str();
  command
      ->add_option("--training", options->training,
                   "Training file whose model is measured, or the name of a shipped one")
      ->capture_default_str();
  command->add_option("--local-batch", options->local_batch, "Samples per worker and step")
      ->check(CLI::Range(1, kMostSamplesTimed))
      ->capture_default_str();
  command->add_option("-o,--output", options->output, "Calibration file to write")
      ->capture_default_str();
  CLI::Option* workload_output = command->add_option(
      "--workload-output", options->workload_output,
      "Also write the model as a workload file, with its times on this machine");
  command
      ->add_option("--codec", options->codecs,
                   "Also measure the error of this codec on the model's gradients, e.g. "
                   "'topk:density=0.1'. May be repeated")
      ->needs(workload_output);
  command->footer(
      "Example: rackrail calibrate --workers 4 -o machine.json --workload-output digits.yaml");
  command->callback([&session, options] {
    session.command = "calibrate";
    run_calibrate(session, *options);
  });
}

}  // namespace rackrail::cli
