#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"
#include "explore/explain.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

namespace {

struct ExplainCommandOptions {
  std::string target;  ///< a plan file or a cluster
  std::string workload;
  ClusterOptions cluster;
  double error_budget = planner::PlannerOptions{}.error_budget;
  std::size_t jobs = 0;
  bool replan = false;
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
  chosen.compare_baselines = false;
  ProgressBar bar("planning");
  chosen.progress = [&bar](double share, const std::string& what) { bar.update(share, what); };
  const auto cost_model = sim::make_cost_model(input.cluster, {});
  input.plan = planner::make_plan(input.cluster, input.workload, *cost_model, chosen);
  return input;
}

nlohmann::json to_json(const explore::Explanation& explanation) {
  nlohmann::json parts = nlohmann::json::array();
  for (const explore::Part& part : explanation.parts) {
    parts.push_back({{"what", part.what}, {"time_s", part.time.seconds()}, {"share", part.share}});
  }
  nlohmann::json gains = nlohmann::json::array();
  for (const explore::Gain& gain : explanation.gains) {
    nlohmann::json object = {{"what", gain.what},
                             {"change", gain.change},
                             {"step_time_s", gain.step_time.seconds()},
                             {"gain", gain.gain}};
    if (gain.kept_plan_time) {
      object["kept_plan_step_time_s"] = gain.kept_plan_time->seconds();
    }
    gains.push_back(std::move(object));
  }
  const explore::Gain* bottleneck = explanation.bottleneck();
  return {{"step_time_s", explanation.step_time.seconds()},
          {"bottleneck", bottleneck != nullptr ? nlohmann::json(bottleneck->what) : nullptr},
          {"parts", parts},
          {"gains", gains},
          {"notes", explanation.notes}};
}

void print(const explore::Explanation& explanation, const PlanInput& input, bool replan) {
  fmt::print("{} on {}: a step takes {}\n\n", input.workload.name, input.cluster.name(),
             to_string(explanation.step_time));
  Table parts({{"critical path"}, {"time", Align::kRight}, {"share", Align::kRight}});
  for (const explore::Part& part : explanation.parts) {
    parts.add_row({part.what, to_string(part.time), percent(part.share)});
  }
  fmt::print("{}\n", parts.to_string());
  std::vector<Table::Column> columns{
      {"what if"}, {"change"}, {"step time", Align::kRight}, {"gain", Align::kRight}};
  if (replan) {
    columns.push_back({"same plan", Align::kRight});
  }
  Table gains(columns);
  for (const explore::Gain& gain : explanation.gains) {
    std::vector<std::string> cells{gain.what, gain.change, to_string(gain.step_time),
                                   fmt::format("{:.2f} %", gain.gain * 100)};
    if (gain.kept_plan_time) {
      cells.push_back(to_string(*gain.kept_plan_time));
    }
    gains.add_row(std::move(cells));
  }
  fmt::print("{}\n", gains.to_string());
  if (const explore::Gain* bottleneck = explanation.bottleneck()) {
    fmt::print("bottleneck      {}: {} saves {:.2f} % of the step\n", bottleneck->what,
               bottleneck->change, bottleneck->gain * 100);
  }
  for (const std::string& note : explanation.notes) {
    fmt::print("note            {}\n", note);
  }
}

void run(Session& session, const ExplainCommandOptions& options) {
  const PlanInput input = load(session, options);
  ProgressBar bar("what if");
  explore::ExplainOptions explaining;
  explaining.replan = options.replan;
  explaining.threads = options.jobs;
  explaining.progress = [&bar](std::size_t done, std::size_t all) {
    bar.update(static_cast<double>(done) / static_cast<double>(all),
               fmt::format("{} of {} changes", done, all));
  };
  const explore::Explanation explanation =
      explore::explain(input.plan, input.workload, input.cluster, explaining);
  bar.clear();
  if (session.json) {
    session.print_json(to_json(explanation));
  } else {
    print(explanation, input, options.replan);
  }
}

}  // namespace

void add_explain_command(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("explain", "Find the bottleneck, and what more of anything would buy");
  add_common_options(*command, session);
  const auto options = std::make_shared<ExplainCommandOptions>();
  command
      ->add_option("target", options->target, "Plan file; or a cluster, which is planned for first")
      ->required();
  command->add_option("workload,--workload,--model", options->workload,
                      "Workload file, or the name of a shipped one; of a plan, its own by default");
  command->add_option("--cluster", options->cluster.cluster,
                      "Cluster of the plan, where it is not a shipped one");
  options->cluster.add_to(*command);
  options->cluster.add_calibration_to(*command);
  command
      ->add_option("--error-budget", options->error_budget,
                   "Of the plan that is made for a cluster, as in rackrail plan")
      ->check(CLI::Range(0.0, kLargestErrorBudget))
      ->capture_default_str();
  command->add_flag("--replan", options->replan,
                    "Plan anew for every change, and take the better plan");
  command->add_option("-j,--jobs", options->jobs, "Threads; one per core by default")
      ->check(CLI::Range(1, kMostThreads));
  command->footer(
      "Examples: rackrail explain two-racks-40g bert-large\n"
      "          rackrail explain plan.json --replan");
  command->callback([&session, options] {
    session.command = "explain";
    run(session, *options);
  });
}

}  // namespace rackrail::cli
