#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/simulation_notes.hpp"
#include "cli/table.hpp"
#include "cli/trace_explanation.hpp"
#include "explore/explain.hpp"
#include "plan/limits.hpp"
#include "planner/planner.hpp"
#include "sim/scenario.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

namespace {

constexpr int kMostStepsExplained = 1'000'000;

struct ExplainCommandOptions {
  std::string target;  ///< a plan file or a cluster
  std::string workload;
  ClusterOptions cluster;
  double error_budget = planner::PlannerOptions{}.error_budget;
  std::string scenario;
  int steps = 0;                   ///< 0: as the scenario says, else 1
  std::string step = "last";       ///< whose critical path is shown
  std::vector<std::string> links;  ///< to be changed by themselves
  std::size_t jobs = 0;
  std::string search = "quick";
  bool replan = false;
  bool has_seed = false;  ///< on the command line
};

/// The plan that the user has, or the one that the planner would make.
PlanInput load(Session& session, ExplainCommandOptions options) {
  if (!is_cluster(options.target)) {
    return load_plan_input(session, options.target, options.cluster, options.workload);
  }
  if (options.workload.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "explain",
                                   fmt::format("the cluster '{}' alone", options.target),
                                   "a workload beside it"});
  }
  options.cluster.cluster = options.target;
  PlanInput input;
  input.cluster = options.cluster.load(session);
  input.workload = load_workload(session, options.workload);
  planner::PlannerOptions chosen;
  chosen.error_budget = options.error_budget;
  chosen.seed = session.seed;
  chosen.effort = parse_search(options.search);
  chosen.compare_baselines = false;
  ProgressBar bar("planning", session.progress_elsewhere());
  chosen.progress = [&bar](double share, const std::string& what) { bar.update(share, what); };
  const auto cost_model = sim::make_cost_model(input.cluster, {});
  input.plan = planner::make_plan(input.cluster, input.workload, *cost_model, chosen);
  return input;
}

/// Scenario, steps and seed, checked on the cluster as it is.
explore::ConditionOptions conditions_of(Session& session, const ExplainCommandOptions& options,
                                        const topology::Topology& cluster) {
  explore::ConditionOptions conditions;
  if (!options.scenario.empty()) {
    conditions.scenario = explore::Source{options.scenario, read_file(options.scenario)};
    const std::filesystem::path file = options.scenario;
    session.add_inputs({&file, 1});
    session.add_inputs(sim::files_of_scenario(options.scenario, conditions.scenario->text));
  }
  conditions.steps = options.steps;
  if (options.has_seed) {
    conditions.seed = session.seed;
  }
  const explore::Conditions read = explore::conditions_of(conditions, cluster);
  const int steps = read.simulation.steps;
  const std::optional<sim::StepChoice> choice = sim::parse_step_choice(options.step);
  if (!choice || (choice->kind == sim::StepChoice::Kind::kNumber && choice->number >= steps)) {
    throw ConfigError(
        ErrorContext{"<command line>", "--step", fmt::format("'{}'", options.step),
                     fmt::format("last, slowest, median or a number from 0 to {}", steps - 1)});
  }
  conditions.step = *choice;
  session.seed = read.simulation.disturbances.seed;
  return conditions;
}

nlohmann::json name_or_null(const explore::Gain* gain) {
  return gain != nullptr ? nlohmann::json(gain->what) : nullptr;
}

nlohmann::json to_json(const explore::Explanation& explanation) {
  nlohmann::json parts = nlohmann::json::array();
  for (const explore::Part& part : explanation.parts) {
    nlohmann::json object = {
        {"what", part.what}, {"time_s", part.time.seconds()}, {"share", part.share}};
    if (!part.link.empty()) {
      object["link"] = part.link;
      object["link_time_s"] = part.link_time.seconds();
    }
    parts.push_back(std::move(object));
  }
  nlohmann::json gains = nlohmann::json::array();
  for (const explore::Gain& gain : explanation.gains) {
    nlohmann::json object = {{"what", gain.what},
                             {"change", gain.change},
                             {"step_time_s", gain.step_time.seconds()},
                             {"gain", gain.gain},
                             {"disturbance", gain.is_disturbance}};
    if (gain.kept_plan_time) {
      object["kept_plan_step_time_s"] = gain.kept_plan_time->seconds();
    }
    gains.push_back(std::move(object));
  }
  return {{"step_time_s", explanation.step_time.seconds()},
          {"steps", explanation.steps},
          {"reported_step", explanation.reported},
          {"reported_step_time_s", explanation.reported_time.seconds()},
          {"bottleneck", name_or_null(explanation.bottleneck())},
          {"worst_disturbance", name_or_null(explanation.worst_disturbance())},
          {"parts", parts},
          {"gains", gains},
          {"notes", explanation.notes}};
}

void print_parts(const explore::Explanation& explanation) {
  std::string title = "critical path";
  if (explanation.steps > 1) {
    title +=
        fmt::format(" of step {}, {}", explanation.reported, to_string(explanation.reported_time));
  }
  Table parts({{title}, {"time", Align::kRight}, {"share", Align::kRight}, {"most of it on"}});
  for (const explore::Part& part : explanation.parts) {
    parts.add_row({part.what, to_string(part.time), percent(part.share), part.link});
  }
  fmt::print("{}\n", parts.to_string());
}

constexpr double kLeastShown = 5e-5;  // of a step

void print(const explore::Explanation& explanation, const PlanInput& input,
           const ExplainCommandOptions& options, bool has_outages) {
  fmt::print("{} on {}{}: a step takes {}{}\n\n", input.workload.name, input.cluster.name(),
             options.scenario.empty() ? "" : " under " + options.scenario,
             to_string(explanation.step_time),
             has_outages             ? " of the run, with what it loses"
             : explanation.steps > 1 ? fmt::format(" on average of {}", explanation.steps)
                                     : "");
  print_parts(explanation);
  std::vector<Table::Column> columns{
      {"what if"}, {"change"}, {"step time", Align::kRight}, {"gain", Align::kRight}};
  if (options.replan) {
    columns.push_back({"same plan", Align::kRight});
  }
  Table gains(columns);
  std::vector<std::string> idle;
  for (const explore::Gain& gain : explanation.gains) {
    const bool is_shown = std::abs(gain.gain) >= kLeastShown || options.replan ||
                          !options.links.empty() || &gain == &explanation.gains.front();
    if (!is_shown) {
      const bool is_idle = std::ranges::none_of(explanation.gains, [&](const explore::Gain& other) {
        return other.what == gain.what && std::abs(other.gain) >= kLeastShown;
      });
      if (is_idle && std::ranges::find(idle, gain.what) == idle.end()) {
        idle.push_back(gain.what);
      }
      continue;
    }
    std::vector<std::string> cells{gain.what, gain.change, to_string(gain.step_time),
                                   fmt::format("{:.2f} %", gain.gain * 100)};
    if (gain.kept_plan_time) {
      cells.push_back(to_string(*gain.kept_plan_time));
    }
    gains.add_row(std::move(cells));
  }
  fmt::print("{}\n", gains.to_string());
  if (!idle.empty()) {
    fmt::print("no gain         by {} (below 0.005 % of the step)\n", fmt::join(idle, ", "));
  }
  if (const explore::Gain* bottleneck = explanation.bottleneck()) {
    fmt::print("bottleneck      {}: {} saves {:.2f} % of the step\n", bottleneck->what,
               bottleneck->change, bottleneck->gain * 100);
  }
  if (const explore::Gain* worst = explanation.worst_disturbance()) {
    fmt::print("what costs most {}: without it the step would be {:.2f} % shorter\n", worst->what,
               worst->gain * 100);
  }
  for (const std::string& note : explanation.notes) {
    fmt::print("note            {}\n", note);
  }
}

/// Prints what `load` gave; with --json returns it instead.
nlohmann::json explain_plan(Session& session, const ExplainCommandOptions& options) {
  const PlanInput input = load(session, options);
  explore::ExplainOptions explaining;
  explaining.conditions = conditions_of(session, options, input.cluster);
  for (const std::string& name : options.links) {
    explaining.links.push_back(named("<command line>", "--link",
                                     [&] { return explore::named_links(input.cluster, name); }));
  }
  ProgressBar bar("what if", session.progress_elsewhere());
  explaining.replan = options.replan;
  explaining.threads = options.jobs;
  explaining.progress = [&bar](std::size_t done, std::size_t all) {
    bar.update(static_cast<double>(done) / static_cast<double>(all),
               fmt::format("{} of {} changes", done, all));
  };
  const bool has_outages =
      explore::conditions_of(explaining.conditions, input.cluster).outages.has_value();
  const EndsEarly ends_early;
  explaining.stop = was_interrupted;
  explore::Explanation explanation =
      explore::explain(input.plan, input.workload, input.cluster, explaining);
  if (auto note = unknown_class_note(input.cluster)) {
    explanation.notes.push_back(*std::move(note));
  }
  if (auto note = without_class_note(input.cluster, input.workload)) {
    explanation.notes.push_back(*std::move(note));
  }
  bar.clear();
  if (explanation.left_out > 0) {
    session.status = kInterrupted;
    explanation.notes.push_back(fmt::format(
        "stopped by Ctrl-C: {} changes were not tried, so the bottleneck may be another one",
        explanation.left_out));
  }
  if (session.json) {
    return to_json(explanation);
  }
  print(explanation, input, options, has_outages);
  return {};
}

/// Of a trace; with a cluster also of the plan that the trace's gradients would have there.
nlohmann::json explain_trace(Session& session, const ExplainCommandOptions& options,
                             const explore::TraceExplanation& trace) {
  nlohmann::json result = cli::to_json(trace);
  if (!session.json) {
    cli::print(trace, options.target);
  }
  if (options.cluster.cluster.empty()) {
    return result;
  }
  ExplainCommandOptions planned = options;
  planned.target = options.cluster.cluster;
  planned.workload = options.workload.empty() ? options.target : options.workload;
  if (!session.json) {
    fmt::print("\n");
  }
  try {
    result["plan"] = explain_plan(session, planned);
  } catch (const ConfigError& error) {
    if (error.context().file != options.target) {
      throw;
    }
    result["plan"] = nullptr;  // what was measured stands
    result["notes"].push_back(error.what());
    session.note(fmt::format("note: no plan: {}", error.what()));
  }
  return result;
}

void run(Session& session, const ExplainCommandOptions& options) {
  const std::optional<explore::TraceExplanation> trace = explain_if_trace(session, options.target);
  const nlohmann::json result =
      trace ? explain_trace(session, options, *trace) : explain_plan(session, options);
  if (session.json) {
    session.print_json(result);
  }
}

}  // namespace

void add_explain_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "explain", "Find the bottleneck, and what faster links or devices would gain");
  add_common_options(*command, session);
  const auto options = std::make_shared<ExplainCommandOptions>();
  command
      ->add_option("target", options->target,
                   "Plan file; or a cluster, for which a plan is made first; or a trace of the "
                   "PyTorch profiler, which is explained as it was measured")
      ->required();
  command->add_option("workload,--workload,--model", options->workload,
                      "Workload file, or the name of a shipped model. By default the plan's own");
  command->add_option(
      "--cluster", options->cluster.cluster,
      "Cluster file of the plan; not needed for a shipped cluster. With a trace: also "
      "explain the plan that its gradients would have there");
  options->cluster.add_to(*command);
  options->cluster.add_calibration_to(*command);
  add_share_option(*command, "--error-budget", options->error_budget, plan::kMostErrorBudget,
                   "Error budget of the plan that is made for a cluster, see 'rackrail plan'");
  command->add_option("--scenario", options->scenario,
                      "YAML file of faults, as for 'rackrail simulate'. Gains are then under these "
                      "faults, and removing each fault is tried, too");
  command
      ->add_option(
          "--steps", options->steps,
          "Simulate this many steps and compare their mean. Default: the scenario's, else 1")
      ->check(CLI::Range(1, kMostStepsExplained));
  command
      ->add_option("--step", options->step,
                   "Step whose critical path is shown: last, slowest, median or a number from 0")
      ->capture_default_str();
  command
      ->add_option(
          "--link", options->links,
          "Also change this link alone, in each direction and with its parallel cables, e.g. "
          "'tor0->core0'. 'tor0->core0#2' is the second of parallel links. May be repeated")
      ->take_all();
  add_search_option(*command, options->search);
  command->add_flag("--replan", options->replan,
                    "Make a new plan for every change and show the better one. Takes much longer");
  command->add_option("-j,--jobs", options->jobs, "Number of threads. Default: one per core")
      ->check(CLI::Range(1, kMostThreads));
  command->footer(
      "Examples: rackrail explain two-racks-40g bert-large\n"
      "          rackrail explain trace.json.gz --cluster two-racks-40g\n"
      "          rackrail explain plan.json --replan\n"
      "          rackrail explain plan.json --scenario faults.yaml --link 'tor0->core0'");
  command->callback([&session, options, command] {
    session.command = "explain";
    options->has_seed = command->count("--seed") > 0;
    run(session, *options);
  });
}

}  // namespace rackrail::cli
