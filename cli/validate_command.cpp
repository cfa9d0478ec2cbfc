#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/comparison.hpp"
#include "cli/emulation.hpp"
#include "cli/inputs.hpp"
#include "cli/measured_cases.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"
#include "cli/validate_emulation.hpp"
#include "cli/validate_gpu.hpp"
#include "plan/codec.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "sim/measured/measurements.hpp"
#include "sim/nccl/calibrate.hpp"
#include "sim/nccl/model.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

namespace nccl = sim::nccl;

constexpr std::size_t kCasesShown = 24;

struct ValidateOptions {
  std::vector<std::string> files;
  ClusterOptions cluster;
  std::string calibrate_on;
  std::string parameters;
  std::string save;
  std::string from = "4 B";
  std::string to = "64 MiB";
  std::string algorithm;
  std::string protocol;
  std::string within;
  std::string mean_within;
  bool all_rows = false;
  bool every_schedule = false;
  std::vector<std::string> codecs;
  double scale = 1;
  std::string output;
  std::int64_t steps = EmulationValidation{}.steps;
  std::string training;  ///< empty: another one for each kind of validation
  std::int64_t local_batch = 0;
  GpuValidation gpu;
  std::string gpu_codec;     ///< empty: FP32
  std::string gpu_schedule;  ///< empty: the fastest
};

struct Case {
  const nccl::Measured* measured;
  nccl::Prediction prediction;
  double error() const { return prediction.time.seconds() / measured->seconds - 1; }
};

/// "gpus=2,4" or "nodes=2": which cases to calibrate on.
class Selection {
 public:
  explicit Selection(const std::string& text) {
    const std::size_t equals = text.find('=');
    by_nodes_ = text.substr(0, equals) == "nodes";
    if (equals == std::string::npos || (!by_nodes_ && text.substr(0, equals) != "gpus")) {
      fail(text);
    }
    const char* at = text.data() + equals + 1;
    const char* end = text.data() + text.size();
    while (true) {
      std::size_t count = 0;
      const auto [next, error] = std::from_chars(at, end, count);
      if (error != std::errc() || count == 0 || (next != end && *next != ',')) {
        fail(text);
      }
      counts_.push_back(count);
      if (next == end) {
        return;
      }
      at = next + 1;
    }
  }
  bool has(const nccl::Measured& one) const {
    const std::size_t count = by_nodes_ ? one.nodes : one.nodes * one.gpus_per_node;
    return std::find(counts_.begin(), counts_.end(), count) != counts_.end();
  }

 private:
  [[noreturn]] static void fail(const std::string& text) {
    throw ConfigError(ErrorContext{"<command line>", "--calibrate-on", "'" + text + "'",
                                   "gpus=N,N… (in all) or nodes=N,N…"});
  }
  bool by_nodes_ = false;
  std::vector<std::size_t> counts_;
};

ErrorSummary summarise(const std::vector<Case>& cases) {
  std::vector<double> errors;
  for (const Case& one : cases) {
    errors.push_back(one.error());
  }
  return cli::summarise(errors);
}

/// Per machine size: how many cases, mean and worst.
std::string groups_table(const std::vector<Case>& cases) {
  std::map<std::string, std::vector<Case>> groups;
  for (const Case& one : cases) {
    groups[one.measured->what].push_back(one);
  }
  Table table({{"what"},
               {"cases", Align::kRight},
               {"mean factor", Align::kRight},
               {"median error", Align::kRight},
               {"worst", Align::kRight}});
  for (const auto& [what, group] : groups) {
    const ErrorSummary summary = summarise(group);
    table.add_row({what, std::to_string(group.size()), fmt::format("{:.3f}", 1 + summary.mean),
                   percent(summary.median), error_text(summary.worst)});
  }
  return table.to_string();
}

/// Some rows, spread over all of them and with the worst.
std::vector<std::size_t> rows_shown(const std::vector<Case>& cases, bool all) {
  std::vector<std::size_t> rows;
  const std::size_t most = all ? cases.size() : std::min(cases.size(), kCasesShown);
  for (std::size_t k = 0; k < most; ++k) {
    rows.push_back(most == 1 ? 0 : k * (cases.size() - 1) / (most - 1));
  }
  const auto worst = std::max_element(cases.begin(), cases.end(), [](const Case& a, const Case& b) {
    return std::abs(a.error()) < std::abs(b.error());
  });
  rows.push_back(static_cast<std::size_t>(worst - cases.begin()));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::string how(const nccl::Prediction& prediction) {
  return fmt::format("{}, {}", nccl::to_string(prediction.algorithm),
                     nccl::to_string(prediction.protocol));
}

void print_text(const std::vector<Case>& cases, const ErrorSummary& summary,
                const std::string& cluster, const std::string& measured_with, bool all_rows) {
  fmt::print("all-reduce on {}: predicted of NCCL, measured with {}\n\n", cluster, measured_with);
  Table table({{"what"},
               {"size", Align::kRight},
               {"by"},
               {"predicted", Align::kRight},
               {"measured", Align::kRight},
               {"error", Align::kRight}});
  const std::vector<std::size_t> rows = rows_shown(cases, all_rows);
  for (const std::size_t i : rows) {
    const Case& one = cases[i];
    table.add_row({one.measured->what, to_string(one.measured->size), how(one.prediction),
                   to_string(one.prediction.time),
                   to_string(Duration::from_seconds(one.measured->seconds)),
                   error_text(one.error())});
  }
  fmt::print("{}", table.to_string());
  if (rows.size() < cases.size()) {
    fmt::print("({} more with --all-rows)\n", cases.size() - rows.size());
  }
  fmt::print("\n{}\n{}\n", groups_table(cases), summary_text(summary));
}

nlohmann::json to_json(const std::vector<Case>& cases, const ErrorSummary& summary,
                       const nccl::Parameters& parameters, bool calibrated) {
  nlohmann::json list = nlohmann::json::array();
  for (const Case& one : cases) {
    list.push_back({{"what", one.measured->what},
                    {"bytes", one.measured->size.count()},
                    {"algorithm", nccl::to_string(one.prediction.algorithm)},
                    {"protocol", nccl::to_string(one.prediction.protocol)},
                    {"predicted_s", one.prediction.time.seconds()},
                    {"measured_s", one.measured->seconds},
                    {"relative_error", one.error()}});
  }
  nlohmann::json values;
  for (const nccl::ParameterInfo& info : nccl::parameter_table()) {
    values[std::string(info.name) + (info.is_time ? "_s" : "")] = parameters.*info.member;
  }
  return {{"cases", list},
          {"median_relative_error", summary.median},
          {"geomean_relative_error", summary.mean},
          {"worst_relative_error", std::abs(summary.worst)},
          {"parameters", values},
          {"calibrated", calibrated}};
}

double bound(const char* option, const std::string& text) {
  return text.empty() ? std::numeric_limits<double>::infinity()
                      : named("<command line>", option, [&] { return parse_share(text); });
}

/// Whether the cluster itself is to be emulated, and not measurements held against predictions.
bool is_emulation(const ValidateOptions& options) {
  if (!options.cluster.cluster.empty()) {
    return false;
  }
  const std::string& file = options.files.front();
  // A CSV with any header is taken for a cluster's table otherwise.
  if (options.files.size() == 1 && !sim::measured::has_measurements(file) && is_cluster(file)) {
    return true;
  }
  throw ConfigError(ErrorContext{
      "<command line>", "validate", "no --cluster",
      "--cluster that the measurements are of (as --cluster a100-8x8), or a cluster to "
      "emulate instead of measurements"});
}

/// One whose sums of equal values can be checked.
plan::Codec parse_rounding_codec(const std::string& text) {
  constexpr double kMostError = 0.1;
  const plan::Codec codec =
      named("<command line>", "--codecs", [&] { return plan::parse_codec(text); });
  if (plan::relative_error(codec) > kMostError) {
    throw ConfigError(ErrorContext{"<command line>", "--codecs", text,
                                   "codecs that keep every value, as none, fp16 and int8 do"});
  }
  return codec;
}

void run_emulation(Session& session, const ValidateOptions& options) {
  EmulationValidation emulation;
  emulation.cluster = options.cluster;
  emulation.cluster.cluster = options.files.front();
  const auto size = [](const char* option, const std::string& text) {
    return named("<command line>", option, [&] { return parse_bytes(text); });
  };
  emulation.from = size("--from", options.from);
  emulation.to = size("--to", options.to);
  emulation.collectives.every_schedule = options.every_schedule;
  if (!options.codecs.empty()) {
    emulation.collectives.codecs.clear();
    for (const std::string& codec : options.codecs) {
      emulation.collectives.codecs.push_back(parse_rounding_codec(codec));
      emulation.step_codecs.push_back(emulation.collectives.codecs.back());
    }
  }
  emulation.scale = options.scale;
  emulation.output = options.output;
  emulation.steps = options.steps;
  emulation.training = options.training.empty() ? emulation.training : options.training;
  emulation.local_batch = options.local_batch;
  emulation.worst_allowed = bound("--within", options.within);
  emulation.mean_allowed = bound("--mean-within", options.mean_within);
  validate_by_emulation(session, emulation);
}

void run_on_gpu(Session& session, const ValidateOptions& options) {
  if (!options.files.empty() || !options.cluster.cluster.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "--device cuda", "measurements or a cluster",
                                   "neither: the training is planned for this machine's GPUs"});
  }
  GpuValidation gpu = options.gpu;
  gpu.steps = options.steps;
  gpu.training = options.training.empty() ? gpu.training : options.training;
  gpu.local_batch = options.local_batch;
  gpu.worst_allowed = bound("--within", options.within);
  if (!options.gpu_codec.empty()) {
    gpu.codec =
        named("<command line>", "--codec", [&] { return plan::parse_codec(options.gpu_codec); });
  }
  if (!options.gpu_schedule.empty()) {
    gpu.schedule = named("<command line>", "--schedule", [&] {
      return std::string(planner::schedule_family(options.gpu_schedule).name());
    });
  }
  validate_on_gpu(session, gpu);
}

void run_validate(Session& session, const ValidateOptions& options) {
  if (options.gpu.gpu.on_gpu()) {
    run_on_gpu(session, options);
    return;
  }
  for (const auto& [option, text] :
       {std::pair("--codec", options.gpu_codec), std::pair("--schedule", options.gpu_schedule)}) {
    if (!text.empty()) {
      throw ConfigError(ErrorContext{"<command line>", option, text,
                                     "--device cuda with it; on an emulated network --codecs, or "
                                     "--every-schedule"});
    }
  }
  if (options.files.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "measurements", "none",
                                   "files, a cluster to emulate, or --device cuda"});
  }
  if (is_emulation(options)) {
    run_emulation(session, options);
    return;
  }
  if (!options.save.empty()) {
    require_place(options.save);
  }
  const topology::Topology cluster = options.cluster.load(session);
  const Bytes from = parse_bytes(options.from);
  const nccl::Choice forced = sim::measured::parse_choice(options.algorithm, options.protocol);
  const double worst_allowed = bound("--within", options.within);
  const double mean_allowed = bound("--mean-within", options.mean_within);
  MeasuredCases read = read_measured_cases(session, options.files, from, forced);
  std::vector<nccl::Measured>& measured = read.all_reduces;
  nccl::Parameters parameters = load_nccl_parameters(session, options.parameters);
  const bool calibrates = !options.calibrate_on.empty();
  std::vector<nccl::Measured> learnt;
  if (calibrates) {
    const Selection selection(options.calibrate_on);
    const auto held =
        std::stable_partition(measured.begin(), measured.end(),
                              [&](const nccl::Measured& one) { return selection.has(one); });
    learnt.assign(std::make_move_iterator(measured.begin()), std::make_move_iterator(held));
    measured.erase(measured.begin(), held);
    std::optional<ProgressBar> bar(std::in_place, "fitting constants",
                                   session.progress_elsewhere());
    const nccl::Fit fit = nccl::fit(cluster, learnt, parameters);
    bar.reset();
    parameters = fit.parameters;
    std::string names;
    for (const std::string_view name : fit.fitted) {
      names += (names.empty() ? "" : ", ") + std::string(name);
    }
    session.note(fmt::format("calibrated on {} cases ({}), root mean square error {}: {}",
                             learnt.size(), options.calibrate_on, percent(fit.rms_log_error),
                             names));
  }
  if (!options.save.empty()) {
    session.add_output(options.save);
    std::string origin =
        "Constants of the NCCL model on " + cluster.name() + ", by:\nrackrail validate";
    for (const std::string& file : options.files) {
      origin += " " + std::filesystem::path(file).filename().string();
    }
    origin +=
        fmt::format(" --cluster {}{} --from '{}' --save-parameters …", options.cluster.cluster,
                    calibrates ? " --calibrate-on " + options.calibrate_on : "", options.from);
    write_file_atomically(
        options.save,
        nccl::to_yaml(parameters, std::filesystem::path(options.save).stem().string(), origin));
  }
  if (measured.empty()) {
    if (!options.save.empty()) {
      session.note("every case was calibrated on: nothing left to predict");
      if (session.json) {
        session.print_json(to_json({}, {}, parameters, calibrates));
      }
      return;
    }
    throw ConfigError(ErrorContext{"<command line>", "validate", "no case to predict",
                                   "measurements from --from on, beside those calibrated on"});
  }
  nccl::Machines machines(cluster);
  if (const std::string note = choice_note(read.chosen, machines); !note.empty()) {
    session.note(note);
  }
  std::vector<Case> cases;
  ProgressBar bar("predicting", session.progress_elsewhere());
  for (const nccl::Measured& one : measured) {
    bar.update(static_cast<double>(cases.size()) / static_cast<double>(measured.size()));
    cases.push_back({&one, nccl::all_reduce(machines.of(one), one.size, one.choice, parameters)});
  }
  bar.clear();
  const ErrorSummary summary = summarise(cases);
  if (session.json) {
    session.print_json(to_json(cases, summary, parameters, calibrates));
  } else {
    print_text(cases, summary, cluster.name(),
               fmt::format("{}", fmt::join(read.measured_with, " and ")), options.all_rows);
  }
  const bool is_missed = std::abs(summary.worst) > worst_allowed || summary.mean > mean_allowed;
  session.status = is_missed ? kNotMet : kDone;
}

/// Of `--device cuda` alone.
void add_gpu_options(CLI::App& command, ValidateOptions& options) {
  constexpr int kMostWorkers = 64;
  options.gpu.gpu.add_to(command);
  command
      .add_option("--workers", options.gpu.workers,
                  "With --device cuda: number of workers. With --gpu-path hybrid they form two "
                  "halves, as of two hosts")
      ->check(CLI::Range(2, kMostWorkers))
      ->capture_default_str();
  command.add_option(
      "--schedule", options.gpu_schedule,
      "With --device cuda: plan with this schedule family only; 'rackrail info' lists them");
  command.add_option("--codec", options.gpu_codec,
                     "With --device cuda: plan with this codec instead of FP32");
}

/// Of what is executed here: on an emulated network, or on GPUs.
void add_training_options(CLI::App& command, ValidateOptions& options, CLI::Option* cluster) {
  constexpr int kMostSteps = 100'000;
  constexpr int kMostSamples = 1'000'000;
  command
      .add_option("--steps", options.steps,
                  "Steps of each training on the emulated network or the GPUs")
      ->check(CLI::Range(2, kMostSteps))
      ->capture_default_str()
      ->excludes(cluster);
  command
      .add_option(
          "--training", options.training,
          fmt::format("Training file, or the name of a shipped one (default: {}; {} on GPUs)",
                      EmulationValidation{}.training, GpuValidation{}.training))
      ->excludes(cluster);
  command
      .add_option("--local-batch", options.local_batch,
                  "Samples per worker and step. Default: the training file's")
      ->check(CLI::Range(1, kMostSamples))
      ->excludes(cluster);
}

}  // namespace

void add_validate_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "validate",
      "Compare predictions with measurements: of NCCL, of an emulated cluster, or of GPUs here");
  add_common_options(*command, session);
  const auto options = std::make_shared<ValidateOptions>();
  command->add_option("measurements", options->files,
                      "Measurements: CSV, JSON lines or logs of nccl-tests. Or a cluster, which is "
                      "emulated and measured");
  CLI::Option* cluster = command->add_option("--cluster", options->cluster.cluster,
                                             "Cluster that the measurements were made on");
  options->cluster.add_to(*command);
  command->add_option(
      "--calibrate-on", options->calibrate_on,
      "Fit the model's constants on these cases and predict the others, e.g. gpus=2,4 or nodes=2");
  command->add_option("--parameters", options->parameters,
                      "Constants to use or start from: a file, or the name of shipped ones");
  command->add_option("--save-parameters", options->save, "Write the constants used to this file");
  command->add_option("--from", options->from, "Smallest message that counts")
      ->capture_default_str();
  command->add_option("--to", options->to, "Largest message on an emulated network")
      ->capture_default_str()
      ->excludes(cluster);
  command->add_option(
      "--algorithm", options->algorithm,
      "NCCL algorithm: ring, tree, nvls or nvls-tree. Default: the file's, else NCCL's choice");
  command->add_option(
      "--protocol", options->protocol,
      "NCCL protocol: ll, ll128 or simple. Default: the file's, else NCCL's choice");
  command->add_option("--within", options->within,
                      "Exit with status 1 if any prediction is further off than this, e.g. 10%. Of "
                      "link messages those from 64 KiB count");
  command->add_option("--mean-within", options->mean_within,
                      "Exit with status 1 if predictions are further off on average than this, "
                      "e.g. 5% (geometric mean)");
  command->add_flag("--all-rows", options->all_rows, "Show every case");
  add_scale_option(*command, options->scale)->excludes(cluster);
  command
      ->add_option("-o,--output", options->output,
                   "On an emulated network: write the result as JSON after every measured row, so "
                   "that it survives an early end")
      ->excludes(cluster);
  command
      ->add_flag(
          "--every-schedule", options->every_schedule,
          "On an emulated network: measure every schedule at every size, not only the fastest")
      ->excludes(cluster);
  command
      ->add_option(
          "--codecs", options->codecs,
          "On an emulated network: also measure these codecs, e.g. none,fp16,int8. Default: none")
      ->delimiter(',')
      ->excludes(cluster);
  add_training_options(*command, *options, cluster);
  add_gpu_options(*command, *options);
  command->footer(
      "On an emulated network these are compared: link rates; messages of 1 KiB to 16 MiB over "
      "a\nlink of each kind; all-reduces of 1 KiB to 64 MiB; and a training.\nExample: rackrail "
      "validate a100-2gpu.csv a100-3gpu.csv a100-4gpu.csv --cluster a100-8x8 \\\n             "
      "--calibrate-on gpus=2,4 --from 8MiB --within 10%\n         rackrail validate two-racks-40g "
      "--scale 0.0125      (as root)\n         rackrail validate --device cuda --share-gpu "
      "--workers 4 --training digits-cnn");
  command->callback([&session, options] {
    session.command = "validate";
    run_validate(session, *options);
  });
}

}  // namespace rackrail::cli
