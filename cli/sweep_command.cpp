#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/sweep_text.hpp"
#include "explore/scenario.hpp"
#include "explore/sweep.hpp"

namespace rackrail::cli {

namespace {

constexpr std::size_t kCellsShown = 20;

struct SweepCommandOptions {
  std::string scenario;
  std::string results;
  std::string csv;
  std::size_t jobs = 0;
  bool retry_failed = false;
};

void print_sweep(const explore::Scenario& scenario, const explore::SweepResult& result,
                 const std::filesystem::path& file) {
  const explore::Objective& objective = *scenario.objective;
  const auto what = [&scenario](const char* axis, const explore::Source& source) {
    const auto varies = std::ranges::count(scenario.axes, axis, &explore::Axis::path);
    return varies > 0 ? fmt::format("several {}s", axis) : source.file.stem().string();
  };
  fmt::print("{}: {} on {}\n\n", scenario.name, what("workload", scenario.workload),
             what("cluster", scenario.cluster));
  fmt::print("{}\n", sweep_table(result.rows, objective, kCellsShown));
  if (scenario.repetitions > 1 && all_executions_equal(result.rows)) {
    fmt::print("the {} executions of each cell are equal: nothing is random here\n",
               scenario.repetitions);
  }
  fmt::print("{} {}: {} run now, {} already in {}, {} failed\n", result.rows.size(),
             result.rows.size() == 1 ? "cell" : "cells", result.ran,
             result.rows.size() - result.ran, file.string(), result.failed);
  if (result.kept > 0) {
    fmt::print("the file also keeps {} rows of cells that this scenario does not have\n",
               result.kept);
  }
  if (result.left_out > 0) {
    fmt::print("stopped by Ctrl-C: {} cells are missing; the same command runs only these\n",
               result.left_out);
  }
  fmt::print("wrote {}\n", file.string());
}

void run(Session& session, const SweepCommandOptions& options, bool seed_is_given) {
  explore::Scenario scenario = explore::read_scenario(options.scenario);
  session.add_inputs(scenario.inputs);
  if (seed_is_given) {
    scenario.seed = session.seed;
  }
  session.seed = scenario.seed;
  const explore::Cells cells(scenario);
  explore::SweepOptions sweep;
  sweep.share = explore::share_from_environment([](const char* name) { return std::getenv(name); });
  sweep.results = options.results.empty()
                      ? std::filesystem::path(options.scenario).stem().string() + ".jsonl"
                      : options.results;
  sweep.threads = options.jobs;
  sweep.retry_failed = options.retry_failed;
  const std::filesystem::path file = sweep.share.own_file(sweep.results);
  const std::filesystem::path csv =
      options.csv.empty() ? std::filesystem::path() : sweep.share.own_file(options.csv);
  require_place(file.string());
  session.add_output(file);
  if (!csv.empty()) {
    require_place(csv.string());
    session.add_output(csv);
  }
  if (sweep.share.count > 1) {
    session.note(fmt::format("rank {} of {}: its cells go to {}", sweep.share.rank,
                             sweep.share.count, file.string()));
  }
  ProgressBar bar("sweeping",
                  sweep.share.rank == 0 ? session.progress_elsewhere() : Elsewhere::kNothing);
  sweep.progress = [&bar](std::size_t done, std::size_t all) {
    bar.update(static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(1, all)),
               fmt::format("{} of {} cells", done, all));
  };
  const EndsEarly ends_early;
  sweep.stop = was_interrupted;
  const explore::SweepResult result = explore::run_sweep(cells, sweep);
  bar.clear();
  if (!csv.empty()) {
    write_file_atomically(csv, explore::to_csv(result.rows));
  }
  session.status = result.failed > 0 ? kNotMet : kDone;
  if (result.left_out > 0) {
    session.status = kInterrupted;
  }
  if (!session.json) {
    print_sweep(scenario, result, file);
    if (!csv.empty()) {
      fmt::print("wrote {}\n", csv.string());
    }
    return;
  }
  nlohmann::json object = {
      {"scenario", scenario.name}, {"cells", result.rows.size()},           {"ran", result.ran},
      {"failed", result.failed},   {"objective", scenario.objective->name}, {"best", nullptr},
      {"output", file.string()}};
  if (const explore::Row* best = explore::best_row(result.rows, *scenario.objective)) {
    object["best"] = nlohmann::json::parse(explore::to_line(*best));
  }
  if (result.left_out > 0) {
    object["interrupted"] = true;
    object["left_out"] = result.left_out;
  }
  if (!csv.empty()) {
    object["csv"] = csv.string();
  }
  session.print_json(object);
}

}  // namespace

void add_sweep_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "sweep", "Plan and simulate many variants of a cluster, a model and their options");
  add_common_options(*command, session);
  const auto options = std::make_shared<SweepCommandOptions>();
  command
      ->add_option("scenario", options->scenario,
                   "Scenario file (YAML): what varies, and over which values")
      ->required();
  command->add_option("-o,--out", options->results,
                      "Results file, one line of JSON per cell. Cells that it already has are not "
                      "run again. Default: <scenario>.jsonl");
  command->add_option("--csv", options->csv, "Also write the results as a CSV table");
  command->add_option("-j,--jobs", options->jobs, "Number of threads. Default: one per core")
      ->check(CLI::Range(1, kMostThreads));
  command->add_flag("--retry-failed", options->retry_failed, "Run cells that failed before again");
  command->footer(
      "Example: rackrail sweep configs/scenarios/uplink-study.yaml --out uplinks.jsonl\nUnder srun "
      "or mpirun each process runs its share and writes uplinks.rank<N>.jsonl. Run it\nonce more "
      "without the launcher to join them.");
  command->callback([&session, options, command] {
    session.command = "sweep";
    run(session, *options, command->count("--seed") > 0);
  });
}

}  // namespace rackrail::cli
