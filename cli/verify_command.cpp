#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/plan_text.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "plan/format.hpp"
#include "plan/verifier.hpp"

namespace rackrail::cli {

namespace {

struct VerifyOptions {
  std::string plan;
  ClusterOptions cluster;
  std::string workload;
};

/// One schedule by itself, from an MSCCL program.
void verify_foreign(Session& session, const VerifyOptions& options) {
  const plan::TransferGraph graph = load_foreign_schedule(session, options.plan);
  const plan::VerifyReport report = plan::verify(graph, nullptr);
  session.status = report.ok() ? kDone : kNotMet;
  if (session.json) {
    session.print_json({{"ok", report.ok()},
                        {"problems", report.problems},
                        {"schedules",
                         {{{"name", graph.name()},
                           {"ranks", graph.rank_count()},
                           {"transfers", report.transfers},
                           {"depth", report.depth},
                           {"largest_fan_in", report.largest_fan_in}}}}});
    return;
  }
  fmt::print("{}: {} ranks, {} transfers, at most {} in a row, at most {} into a rank at once\n\n",
             graph.name(), graph.rank_count(), report.transfers, report.depth,
             report.largest_fan_in);
  for (const std::string& problem : report.problems) {
    fmt::print("wrong: {}\n", problem);
  }
  if (report.ok()) {
    fmt::print(
        "right: every rank ends with every contribution exactly once and the same bits;\n"
        "       no deadlock, and no step races another\n");
  }
}

void run_verify(Session& session, const VerifyOptions& options) {
  if (is_foreign_schedule(options.plan)) {
    verify_foreign(session, options);
    return;
  }
  const PlanInput input =
      load_unverified_input(session, options.plan, options.cluster, options.workload);
  ProgressBar bar("checking", session.progress_elsewhere());
  const plan::VerifyReport whole = plan::verify(input.plan, &input.cluster, &input.workload);
  session.status = whole.ok() ? kDone : kNotMet;
  Table table({{"schedule"},
               {"ranks", Align::kRight},
               {"transfers", Align::kRight},
               {"depth", Align::kRight},
               {"largest fan-in", Align::kRight}});
  nlohmann::json schedules = nlohmann::json::array();
  for (const plan::TransferGraph& graph : input.plan.schedules) {
    const plan::VerifyReport report = plan::verify(graph, &input.cluster);
    table.add_row({graph.name(), std::to_string(graph.rank_count()),
                   std::to_string(report.transfers), std::to_string(report.depth),
                   std::to_string(report.largest_fan_in)});
    schedules.push_back({{"name", graph.name()},
                         {"ranks", graph.rank_count()},
                         {"transfers", report.transfers},
                         {"depth", report.depth},
                         {"largest_fan_in", report.largest_fan_in}});
  }
  bar.clear();
  if (session.json) {
    session.print_json({{"ok", whole.ok()},
                        {"problems", whole.problems},
                        {"digest", plan::digest(input.plan)},
                        {"schedules", schedules}});
    return;
  }
  fmt::print("{}\n", table.to_string());
  for (const std::string& problem : whole.problems) {
    fmt::print("wrong: {}\n", problem);
  }
  if (whole.ok()) {
    fmt::print(
        "right: every rank ends with every contribution exactly once and the same bits;\n"
        "       no deadlock, every route exists, every gradient of {} is in one bucket\n",
        input.workload.name);
  }
}

}  // namespace

void add_verify_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "verify", "Prove that a plan's schedules, or an MSCCL program, are correct");
  add_common_options(*command, session);
  const auto options = std::make_shared<VerifyOptions>();
  command->add_option("plan", options->plan, "Plan file, or an MSCCL program (XML)")->required();
  command->add_option("--cluster", options->cluster.cluster,
                      "Cluster file of the plan; not needed for a shipped cluster");
  options->cluster.add_to(*command);
  command->add_option("--workload,--model", options->workload,
                      "Workload file of the plan; not needed for a shipped model");
  command->footer("Example: rackrail verify plan.json");
  command->callback([&session, options] {
    session.command = "verify";
    run_verify(session, *options);
  });
}

}  // namespace rackrail::cli
