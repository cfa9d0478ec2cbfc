#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/interrupt.hpp"
#include "cli/plan_text.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/sweep_text.hpp"
#include "explore/tune.hpp"
#include "plan/format.hpp"
#include "plan/limits.hpp"

namespace rackrail::cli {

namespace {

constexpr std::size_t kTrialsShown = 5;
constexpr int kMostTrials = 1'000'000;
constexpr int kMostExecutions = 1000;

struct TuneCommandOptions {
  std::string target;  ///< a cluster, with a workload; or a scenario
  std::string workload;
  std::string overlay;
  std::string output;
  std::string results;
  std::optional<std::string> objective;
  std::optional<int> trials;
  std::optional<int> executions;
  double error_budget = planner::PlannerOptions{}.error_budget;
  std::size_t jobs = 0;
};

explore::Scenario scenario_of(Session& session, const TuneCommandOptions& options,
                              bool seed_is_given) {
  explore::Scenario scenario;
  if (options.workload.empty()) {
    if (!std::filesystem::exists(options.target) && is_cluster(options.target)) {
      throw ConfigError(ErrorContext{"<command line>", "tune",
                                     fmt::format("the cluster '{}' alone", options.target),
                                     "a workload beside it, or a scenario"});
    }
    scenario = explore::read_scenario(options.target);
  } else {
    std::optional<std::filesystem::path> overlay;
    if (!options.overlay.empty()) {
      overlay = options.overlay;
      session.add_input(options.overlay);
    }
    scenario = explore::tuning_scenario(
        explore::cluster_source(options.target, overlay),
        explore::workload_source(options.workload, session.workload_options), options.error_budget);
  }
  if (options.trials) {
    scenario.trials = *options.trials;
  }
  if (options.executions) {
    scenario.repetitions = *options.executions;
  }
  if (options.objective) {
    scenario.objective = &explore::objective_named(*options.objective);
  }
  if (seed_is_given) {
    scenario.seed = session.seed;
  }
  session.seed = scenario.seed;
  session.add_inputs(scenario.inputs);
  return scenario;
}

std::string settings(const explore::Row& row) {
  std::string text;
  for (const auto& [path, value] : row.varied) {
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", path.substr(path.find('.') + 1), value);
  }
  return text.empty() ? "what the planner chooses by itself" : text;
}

/// "1234.5 useful samples/s".
std::string figure_text(const explore::Figures& figures, const explore::Objective& objective) {
  return fmt::format("{:.6g}{}{}", explore::value_of(figures, objective),
                     objective.unit.empty() ? "" : " ", objective.unit);
}

void print(const explore::Scenario& scenario, const explore::TuneResult& result,
           const TuneCommandOptions& options) {
  const explore::Objective& objective = *scenario.objective;
  const explore::SweepResult& trials = result.trials;
  fmt::print("{}: {} trials of {} executions, by {}\n\n", scenario.name, trials.rows.size(),
             scenario.repetitions, objective.name);
  fmt::print("{}\n", sweep_table(trials.rows, objective, kTrialsShown));
  fmt::print("best            {}\n", settings(result.best));
  fmt::print("{:<15} {}\n", objective.name, figure_text(*result.best.figures, objective));
  if (result.planner_alone.figures) {
    fmt::print("planner alone   {}\n", figure_text(*result.planner_alone.figures, objective));
  } else {
    fmt::print("planner alone   {}\n", result.planner_alone.error);
  }
  if (scenario.repetitions > 1 && all_executions_equal(trials.rows)) {
    fmt::print(
        "note            the {} executions of each trial are equal: nothing is random here\n",
        scenario.repetitions);
  }
  if (trials.failed > 0) {
    fmt::print("note            {} of {} trials failed\n", trials.failed, trials.rows.size());
  }
  if (trials.left_out > 0) {
    fmt::print(
        "stopped         by Ctrl-C: the best plan found so far, {} over its bound; {} trials "
        "are missing\n",
        percent(result.plan.prediction.gap), trials.left_out);
  }
  fmt::print("\n{}\n{}\n", bucket_table(result.plan), prediction_table(result.plan));
  if (options.output.empty()) {
    fmt::print("not written; add -o plan.json to keep it\n");
  } else {
    fmt::print("wrote           {}\n", options.output);
  }
}

void run(Session& session, const TuneCommandOptions& options, bool seed_is_given) {
  const explore::Scenario scenario = scenario_of(session, options, seed_is_given);
  explore::SweepOptions sweep;
  sweep.results = options.results;
  sweep.threads = options.jobs;
  for (const std::string& file : {options.output, options.results}) {
    if (!file.empty()) {
      require_place(file);
      session.add_output(file);
    }
  }
  ProgressBar bar("tuning", session.progress_elsewhere());
  sweep.progress = [&bar](std::size_t done, std::size_t all) {
    bar.update(static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(1, all)),
               fmt::format("{} of {} trials", done, all));
  };
  const EndsEarly ends_early;
  sweep.stop = was_interrupted;
  const explore::TuneResult result = explore::tune(scenario, sweep);
  bar.clear();
  if (!result.best.figures) {
    throw NothingFound();
  }
  const bool is_partial = result.trials.left_out > 0;
  session.status = is_partial ? kInterrupted : kDone;
  if (!options.output.empty()) {
    plan::save_plan(result.plan, options.output);
  }
  if (!session.json) {
    print(scenario, result, options);
    return;
  }
  nlohmann::json object = {
      {"objective", scenario.objective->name},
      {"trials", result.trials.rows.size()},
      {"ran", result.trials.ran},
      {"failed", result.trials.failed},
      {"executions", scenario.repetitions},
      {"executions_equal", all_executions_equal(result.trials.rows)},
      {"best", nlohmann::json::parse(explore::to_line(result.best))},
      {"planner_alone", nlohmann::json::parse(explore::to_line(result.planner_alone))},
      {"planner_alone_is_best", result.planner_alone_is_best()},
      {"plan", plan_json(result.plan)}};
  if (is_partial) {
    object["interrupted"] = true;
  }
  if (!options.output.empty()) {
    object["output"] = options.output;
  }
  session.print_json(object);
}

}  // namespace

void add_tune_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand("tune", "Search the planner's options for the best plan");
  add_common_options(*command, session);
  const auto options = std::make_shared<TuneCommandOptions>();
  command
      ->add_option(
          "target", options->target,
          "Cluster file or name, with a workload; or a scenario file that says what varies")
      ->required();
  command->add_option("workload,--workload,--model", options->workload,
                      "Workload file, or the name of a shipped model. Not with a scenario");
  command->add_option(
      "--overlay", options->overlay,
      "YAML file that adds what the cluster file lacks: number of hosts, network, GPU");
  command->add_option("-o,--out,--output", options->output,
                      "Plan file to write. A name with .json is readable, any other is binary");
  command->add_option(
      "--results", options->results,
      "File with one line of JSON per trial. Trials that it already has are not run again");
  command->add_option("--trials", options->trials, "Number of random settings to try. Default: 50")
      ->check(CLI::Range(1, kMostTrials));
  command
      ->add_option("--executions", options->executions,
                   "Simulated runs of each trial, with different seeds. Default: 3")
      ->check(CLI::Range(1, kMostExecutions));
  command->add_option("--objective", options->objective,
                      "What is best: goodput (useful samples/s, the default), throughput "
                      "(samples/s), step_time_s, sync_share or gap");
  add_share_option(*command, "--error-budget", options->error_budget, plan::kMostErrorBudget,
                   "Largest error budget to try, see 'rackrail plan'");
  command->add_option("-j,--jobs", options->jobs, "Number of threads. Default: one per core")
      ->check(CLI::Range(1, kMostThreads));
  command->footer("Example: rackrail tune two-racks-40g resnet-50 -o plan.json");
  command->callback([&session, options, command] {
    session.command = "tune";
    run(session, *options, command->count("--seed") > 0);
  });
}

}  // namespace rackrail::cli
