#include "cli/validate_emulation.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/comparison.hpp"
#include "cli/emulation.hpp"
#include "cli/local_prediction.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"
#include "cli/temporary_folder.hpp"
#include "cli/training_report.hpp"
#include "plan/calibration.hpp"
#include "plan/format.hpp"
#include "planner/planner.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/emulate/commands.hpp"
#include "runtime/emulate/rank_commands.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/launch/spawn.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

namespace emulate = runtime::emulate;

constexpr const char* kTraining = "digits-mlp";

/// Thrown from where a signal was noticed, to end everything in order.
struct Interrupted {};

void require_time(const runtime::InterruptGuard& interrupts) {
  if (interrupts.received() != 0) {
    throw Interrupted();
  }
}

struct MachineCosts {
  plan::Calibration calibration;
  plan::Workload workload;
};

/// What `rackrail calibrate` finds in the host of rank 0, where messages go over sockets.
MachineCosts calibrate(const emulate::EmulatedNetwork& network, const TemporaryFolder& folder,
                       const runtime::InterruptGuard& interrupts) {
  constexpr std::size_t kFewest = 2;
  constexpr std::size_t kMost = 64;
  const std::size_t workers = std::clamp(network.plan().host_of_rank.size(), kFewest, kMost);
  const std::string machine = folder.file("machine.json");
  const std::string workload = folder.file("workload.yaml");
  runtime::ChildProcesses children([](std::size_t, std::string_view) {});
  runtime::ChildCommand command;
  command.words = runtime::own_program();
  command.words.insert(command.words.end(), {"calibrate", "--workers", std::to_string(workers),
                                             "-o", machine, "--workload-output", workload});
  network.place(command, Rank(0));
  children.start(command);
  std::vector<runtime::ChildEnd> ends;
  while (ends.empty()) {
    ends = children.wait_for(1_s, interrupts.file_descriptor());
    require_time(interrupts);
  }
  if (!ends.front().ok()) {
    throw RuntimeFailure(fmt::format("measuring this machine {}: {}", describe(ends.front()),
                                     ends.front().last_line));
  }
  return {plan::read_calibration(machine),
          plan::read_workload_text(read_file(workload), std::filesystem::path(workload))};
}

/// Fills in what the ranks measured.
void execute_collectives(const emulate::EmulatedNetwork& network, const TemporaryFolder& folder,
                         const runtime::InterruptGuard& interrupts, CollectivePlan& collectives) {
  const std::string file = folder.file("collectives.plan");
  plan::save_plan(collectives.plan, file);
  std::vector<std::string> last_lines(network.plan().host_of_rank.size());
  emulate::RankCommandOptions run;
  run.words = runtime::own_program();
  run.words.insert(run.words.end(), {"collectives", file});
  run.token = runtime::make_job_token();
  run.on_line = [&](Rank rank, std::string_view line) { last_lines[rank.index()] = line; };
  const emulate::RankCommandResult result = emulate::run_on_ranks(network, run, interrupts);
  require_time(interrupts);
  if (result.failed) {
    throw RuntimeFailure(fmt::format("all-reduces: rank {} {}: {}", result.failed->child,
                                     describe(*result.failed), result.failed->last_line));
  }
  const nlohmann::json answer = nlohmann::json::parse(last_lines.front(), nullptr, false);
  if (!answer.is_object() || answer["times_s"].size() != collectives.cases.size()) {
    throw RuntimeFailure("all-reduces: rank 0 said no times: " + last_lines.front());
  }
  for (std::size_t i = 0; i < collectives.cases.size(); ++i) {
    collectives.cases[i].measured = Duration::from_seconds(answer["times_s"][i].get<double>());
  }
}

struct ComparedStep {
  Compared times;
  nlohmann::json ranks;  ///< rank_rows
};

/// A plan for the built-in model on the network, its predicted and its measured step.
ComparedStep compare_step(const topology::Topology& machine,
                          const emulate::EmulatedNetwork& network, const plan::Workload& workload,
                          sim::SimulationOptions simulation, std::int64_t steps,
                          std::uint64_t seed) {
  const auto cost_model = sim::make_cost_model(machine, simulation);
  planner::PlannerOptions wanted;
  wanted.seed = seed;
  wanted.local_batch = workload.profiled_batch;
  wanted.compare_baselines = false;
  const plan::Plan plan = planner::make_plan(machine, workload, *cost_model, wanted);
  simulation.steps = kStepsUntilSteady;
  const sim::StepResult predicted = sim::simulate_step(plan, workload, machine, simulation);

  runtime::JobOptions job;
  job.training_file = topology::configs_folder() / "training" / (std::string(kTraining) + ".yaml");
  job.training = read_file(job.training_file);
  job.steps = steps;
  job.listen = {emulate::kLeaderAddress, 0};
  job.place_worker = [&network](Rank rank, runtime::ChildCommand& command) {
    network.place(command, rank);
  };
  const emulate::InNamespace inside(network.management());
  const runtime::JobResult result = runtime::run_local_job(plan, job);
  if (!result.ok && result.exit_status > kSignalBase) {
    throw Interrupted();
  }
  if (!result.ok) {
    throw RuntimeFailure("training: " + result.reason);
  }
  Compared compared{.what = fmt::format("step of {}", workload.name),
                    .how = plan.schedules.empty() ? "" : plan.schedules.front().name(),
                    .predicted = predicted.estimate.step_time,
                    .measured = {}};
  for (const runtime::WorkerReport& worker : result.workers) {
    compared.measured = std::max(compared.measured, worker.step_time);
  }
  return {std::move(compared), rank_rows(result)};
}

/// What a rank computes in a step, as it was measured beforehand: processor time, in seconds.
nlohmann::json compute_json(const plan::Workload& workload) {
  return {{"forward_s", workload.forward.seconds()},
          {"backward_s", workload.backward().seconds()},
          {"optimizer_s", workload.optimizer.seconds()}};
}

std::string error_text(double error) { return fmt::format("{:+.1f} %", error * kPercent); }

/// `choices` are of the same cases.
std::string collectives_table(const std::vector<EmulatedCollective>& cases,
                              const std::vector<MeasuredChoice>& choices) {
  std::vector<Table::Column> columns = {{"all-reduce"},
                                        {"codec"},
                                        {"by"},
                                        {"predicted", Align::kRight},
                                        {"measured", Align::kRight},
                                        {"error", Align::kRight}};
  if (!choices.empty()) {
    columns.push_back({"chosen, over the best", Align::kRight});
  }
  Table table(columns);
  for (const EmulatedCollective& one : cases) {
    std::vector<std::string> row = {
        to_string(one.size),      plan::to_string(one.codec), one.family,
        to_string(one.predicted), to_string(one.measured),    error_text(one.error())};
    if (!choices.empty()) {
      const auto choice =
          std::find_if(choices.begin(), choices.end(),
                       [&](const MeasuredChoice& made) { return made.chosen == &one; });
      row.push_back(choice == choices.end() ? "" : error_text(choice->over_best()));
    }
    table.add_row(row);
  }
  return table.to_string();
}

nlohmann::json to_json(const EmulatedCollective& one) {
  return {{"what", to_string(one.size)},          {"bytes", one.size.count()},
          {"codec", plan::to_string(one.codec)},  {"by", one.family},
          {"is_chosen", one.is_chosen},           {"predicted_s", one.predicted.seconds()},
          {"measured_s", one.measured.seconds()}, {"relative_error", one.error()}};
}

nlohmann::json to_json(const MeasuredChoice& choice) {
  return {{"bytes", choice.chosen->size.count()},
          {"codec", plan::to_string(choice.chosen->codec)},
          {"chosen", choice.chosen->family},
          {"best", choice.best->family},
          {"over_best", choice.over_best()}};
}

/// Of predictions, as shares.
struct Errors {
  double mean = 0;  ///< e^mean(|log predicted/measured|) − 1
  double median = 0;
  double worst = 0;
};

Errors errors_of(const std::vector<EmulatedCollective>& cases, const Compared& step) {
  std::vector<double> absolute = {std::abs(step.error())};
  double logarithms = std::abs(std::log1p(step.error()));
  for (const EmulatedCollective& one : cases) {
    absolute.push_back(std::abs(one.error()));
    logarithms += std::abs(std::log1p(one.error()));
  }
  std::sort(absolute.begin(), absolute.end());
  const std::size_t count = absolute.size();
  return {.mean = std::expm1(logarithms / static_cast<double>(count)),
          .median = (absolute[(count - 1) / 2] + absolute[count / 2]) / 2,
          .worst = absolute.back()};
}

std::string choices_line(const std::vector<MeasuredChoice>& choices) {
  if (choices.empty()) {
    return "";
  }
  const auto worst = std::max_element(choices.begin(), choices.end(),
                                      [](const MeasuredChoice& a, const MeasuredChoice& b) {
                                        return a.over_best() < b.over_best();
                                      });
  return fmt::format("the chosen schedule takes at most {} longer than the best of all ({}, {})\n",
                     percent(worst->over_best()), to_string(worst->chosen->size),
                     plan::to_string(worst->chosen->codec));
}

/// Those of the selection's row of sizes that are no less than `from` and no more than `to`.
CollectiveSelection within(CollectiveSelection selection, Bytes from, Bytes to) {
  selection.largest = std::min(selection.largest, to);
  while (selection.smallest < from) {
    selection.smallest = selection.smallest * selection.growth;
  }
  if (selection.smallest > selection.largest) {
    throw ConfigError(ErrorContext{"<command line>", "--from", to_string(from),
                                   "a size up to " + to_string(selection.largest)});
  }
  return selection;
}

}  // namespace

void validate_by_emulation(Session& session, const EmulationValidation& options) {
  const CollectiveSelection selection = within(options.collectives, options.from, options.to);
  const topology::Topology original = options.cluster.load(session);
  if (original.rank_count() < 2) {
    throw ConfigError(ErrorContext{options.cluster.cluster, "ranks",
                                   std::to_string(original.rank_count()), "two at least"});
  }
  std::optional<runtime::InterruptGuard> interrupts(std::in_place);
  try {
    const emulate::EmulatedNetwork network(
        plan_emulation(session, original, options.cluster.cluster, options.scale));
    const CheckedLinks checked = check_emulation(session, network, *interrupts);
    require_time(*interrupts);
    const TemporaryFolder folder;
    const MachineCosts costs = calibrate(network, folder, *interrupts);
    const topology::Topology machine =
        machine_as_network(original, network.plan(), costs.calibration);
    sim::SimulationOptions simulation;
    simulation.device_rates = costs.calibration.rates;
    std::vector<EmulatedCollective> cases;
    for (CollectivePlan& collectives : plan_collectives(machine, simulation, selection)) {
      execute_collectives(network, folder, *interrupts, collectives);
      cases.insert(cases.end(), collectives.cases.begin(), collectives.cases.end());
    }
    interrupts.reset();  // the training has its own
    const auto [step, ranks] =
        compare_step(machine, network, costs.workload, simulation, options.steps, session.seed);

    const std::vector<MeasuredChoice> choices = measured_choices(cases);
    const Errors errors = errors_of(cases, step);
    if (session.json) {
      nlohmann::json json = links_json(network.plan(), checked);
      json["collectives"] = nlohmann::json::array();
      for (const EmulatedCollective& one : cases) {
        json["collectives"].push_back(to_json(one));
      }
      json["choices"] = nlohmann::json::array();
      for (const MeasuredChoice& choice : choices) {
        json["choices"].push_back(to_json(choice));
      }
      json["step"] = to_json(step);
      json["step"]["ranks"] = ranks;
      json["step"]["compute"] = compute_json(costs.workload);
      json["calibration"] = nlohmann::json::parse(to_json(costs.calibration));
      json["worst_relative_error"] = errors.worst;
      json["median_relative_error"] = errors.median;
      json["geomean_relative_error"] = errors.mean;
      session.print_json(json);
    } else {
      fmt::print(
          "{}\n{}\n{}\n{}geometric-mean error {}, median {}, worst {} (load {:.1f} before)\n",
          links_table(network.plan(), checked), collectives_table(cases, choices),
          comparison_table("training", {step}), choices_line(choices), percent(errors.mean),
          percent(errors.median), percent(errors.worst), checked.load);
    }
    const bool is_missed =
        errors.worst > options.worst_allowed || errors.mean > options.mean_allowed;
    session.status = checked.is_held && !is_missed ? kDone : kNotMet;
  } catch (const Interrupted&) {
    session.note("interrupted");
    const int number = interrupts ? interrupts->received() : 0;
    session.status = kSignalBase + (number != 0 ? number : 2);
  }
}

}  // namespace rackrail::cli
