// Models of step time and of noise, fitted to measurements of training runs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "explore/noise_path.hpp"
#include "explore/throughput_model.hpp"

namespace rackrail::cli {

namespace {

using explore::HoldOut;
using explore::MeasuredStep;
using explore::ThroughputForm;
using explore::ThroughputModel;

struct FitOptions {
  std::vector<std::string> files;
  std::string hold_out;
  std::string predict;
};

std::vector<MeasuredStep> read_steps(Session& session, const std::vector<std::string>& files) {
  std::vector<MeasuredStep> steps;
  for (const std::string& file : files) {
    for (MeasuredStep& step : explore::read_measured_steps(file)) {
      steps.push_back(std::move(step));
    }
    session.add_input(file);
  }
  return steps;
}

nlohmann::json errors_json(const explore::PredictionErrors& errors) {
  return {{"rows", errors.rows},
          {"mean_relative_error", errors.mean},
          {"median_relative_error", errors.median},
          {"worst_relative_error", errors.worst}};
}

void print_predictions(const ThroughputModel& model, const std::vector<MeasuredStep>& steps) {
  Table table({{"placement"},
               {"local batch", Align::kRight},
               {"predicted", Align::kRight},
               {"measured", Align::kRight},
               {"error", Align::kRight}});
  for (const MeasuredStep& step : steps) {
    const Duration predicted = model.step_time(step.placement, step.local_batch);
    table.add_row({step.placement.name, std::to_string(step.local_batch), to_string(predicted),
                   to_string(step.step_time),
                   fmt::format("{:+.1f} %", (predicted / step.step_time - 1) * 100)});
  }
  fmt::print("{}\n", table.to_string());
}

void run_fit_steps(Session& session, const FitOptions& options) {
  std::vector<MeasuredStep> known = read_steps(session, options.files);
  std::vector<MeasuredStep> asked;
  if (!options.predict.empty()) {
    asked = read_steps(session, {options.predict});
  } else if (!options.hold_out.empty()) {
    auto divided =
        explore::divide(known, options.hold_out == "rows" ? HoldOut::kRows : HoldOut::kPlacements);
    known = std::move(divided.known);
    asked = std::move(divided.held_out);
  }
  ProgressBar bar("fitting", session.progress_elsewhere());
  const std::pair<const char*, ThroughputForm> forms[] = {
      {"per node count", ThroughputForm::kPerNodeCount},
      {"seven parameters", ThroughputForm::kSevenParameters}};
  std::map<std::string, ThroughputModel> models;
  nlohmann::json result = {{"rows_known", known.size()}};
  Table table({{"model"},
               {"rows"},
               {"number", Align::kRight},
               {"mean error", Align::kRight},
               {"median", Align::kRight},
               {"worst", Align::kRight}});
  for (const auto& [name, form] : forms) {
    const auto& model =
        models
            .emplace(name, named(options.files.front(), "",
                                 [&, form = form] { return ThroughputModel::fit(known, form); }))
            .first->second;
    nlohmann::json entry = {{"parameters", nlohmann::json::object()}};
    for (const auto& [parameter, value] : model.parameters()) {
      entry["parameters"][parameter] = value;
    }
    const auto add = [&](const char* key, const char* what,
                         const std::vector<MeasuredStep>& steps) {
      const explore::PredictionErrors errors = explore::prediction_errors(model, steps);
      entry[key] = errors_json(errors);
      table.add_row({name, what, std::to_string(errors.rows),
                     fmt::format("{:.1f} %", errors.mean * 100),
                     fmt::format("{:.1f} %", errors.median * 100),
                     fmt::format("{:.1f} %", errors.worst * 100)});
    };
    add("known", "fitted to", known);
    if (!asked.empty()) {
      add("predicted", "predicted", asked);
    }
    result["forms"][name] = std::move(entry);
  }
  bar.clear();
  const ThroughputModel& best = models.at("per node count");
  result["predictions"] = nlohmann::json::array();
  for (const MeasuredStep& step : asked) {
    result["predictions"].push_back(
        {{"placement", step.placement.name},
         {"local_batch", step.local_batch},
         {"predicted_s", best.step_time(step.placement, step.local_batch).seconds()},
         {"measured_s", step.step_time.seconds()}});
  }
  if (session.json) {
    session.print_json(result);
    return;
  }
  if (!options.predict.empty()) {
    print_predictions(best, asked);
  }
  fmt::print("{}\n", table.to_string());
  Table constants({{"parameter"}, {"value", Align::kRight}});
  for (const auto& [parameter, value] : best.parameters()) {
    constants.add_row({parameter, fmt::format("{:.4g}", value)});
  }
  fmt::print("{}", constants.to_string());
}

void run_fit_noise(Session& session, const FitOptions& options) {
  const std::vector<std::filesystem::path> paths(options.files.begin(), options.files.end());
  const std::vector<explore::NoiseRun> runs = explore::read_noise_runs(paths);
  session.add_inputs(paths);
  const double base = runs.front().batch;
  nlohmann::json result = {{"base_batch", base}, {"runs", nlohmann::json::array()}};
  Table table({{"batch", Align::kRight},
               {"noise: first", Align::kRight},
               {"middle", Align::kRight},
               {"last", Align::kRight},
               {"steps", Align::kRight},
               {"by its own noise", Align::kRight},
               {"by the others'", Align::kRight},
               {"their noise is off by", Align::kRight}});
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const explore::NoiseRun& run = runs[i];
    const explore::NoisePoint& end = run.points.back();
    const double own = explore::NoisePath({run}).steps(0, end.progress, base, run.batch);
    std::vector<explore::NoiseRun> others = runs;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    nlohmann::json entry = {{"batch", run.batch},
                            {"points", run.points.size()},
                            {"steps", end.steps},
                            {"steps_by_own_noise", own},
                            {"noise_scale_first", run.points.front().noise_scale},
                            {"noise_scale_middle", run.points[run.points.size() / 2].noise_scale},
                            {"noise_scale_last", end.noise_scale}};
    std::string by_others = "-";
    std::string off_by = "-";
    if (!others.empty()) {
      const explore::NoisePath path(others);
      const double error = path.median_log_error(run);
      entry["median_log_error_of_others_noise"] = error;
      off_by = fmt::format("a factor of {:.2f}", std::exp(error));
      const double steps = path.steps(0, end.progress, base, run.batch);
      entry["steps_by_others_noise"] = steps;
      by_others = fmt::format("{:+.1f} %", (steps / end.steps - 1) * 100);
    }
    table.add_row({fmt::format("{}", run.batch),
                   fmt::format("{:.0f}", run.points.front().noise_scale),
                   fmt::format("{:.0f}", run.points[run.points.size() / 2].noise_scale),
                   fmt::format("{:.0f}", end.noise_scale), fmt::format("{}", end.steps),
                   fmt::format("{:+.1f} %", (own / end.steps - 1) * 100), by_others, off_by});
    result["runs"].push_back(std::move(entry));
  }
  if (session.json) {
    session.print_json(result);
    return;
  }
  fmt::print("{}", table.to_string());
}

}  // namespace

void add_fit_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "fit", "Fit models of step time and gradient noise to measured training runs");
  command->require_subcommand(1);
  command->footer("Example: rackrail fit steps placements.csv");

  CLI::App* steps = command->add_subcommand(
      "steps",
      "Fit step time by placement and local batch, and test the fit on rows it has not seen");
  add_common_options(*steps, session);
  const auto step_options = std::make_shared<FitOptions>();
  steps
      ->add_option(
          "files", step_options->files,
          "CSV files with local_bsz, step_time (s), and placement or num_nodes,num_replicas")
      ->required();
  CLI::Option* hold_out =
      steps
          ->add_option(
              "--hold-out", step_options->hold_out,
              "Leave a fifth out of the fit and predict it, chosen by a hash: rows or placements")
          ->check(CLI::IsMember({"rows", "placements"}));
  steps->add_option("--predict", step_options->predict, "Predict the rows of this file")
      ->excludes(hold_out);
  steps->footer("Example: rackrail fit steps placements.csv scalability.csv --hold-out rows");
  steps->callback([&session, step_options] {
    session.command = "fit steps";
    run_fit_steps(session, *step_options);
  });

  CLI::App* noise = command->add_subcommand(
      "noise", "Fit the noise scale along training, and predict the steps of each batch size");
  add_common_options(*noise, session);
  const auto noise_options = std::make_shared<FitOptions>();
  noise
      ->add_option("files", noise_options->files,
                   "CSV files named ...-BATCH.csv with progress, iteration, grad_sqr, grad_var")
      ->required();
  noise->footer("Example: rackrail fit noise validation-128.csv validation-256.csv");
  noise->callback([&session, noise_options] {
    session.command = "fit noise";
    run_fit_noise(session, *noise_options);
  });
}

}  // namespace rackrail::cli
