#include "cli/emulated_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/emulation.hpp"
#include "cli/inputs.hpp"
#include "cli/shared_numbers.hpp"
#include "planner/planner.hpp"
#include "runtime/emulate/emulated_plan.hpp"
#include "runtime/launch/spawn.hpp"
#include "runtime/trainer/config.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

namespace {

namespace emulate = runtime::emulate;

/// Plans that come later are for the cluster, too.
void emulate_later_plans(const emulate::NetworkPlan& network, runtime::JobOptions& job) {
  if (job.plan_for) {
    job.plan_for = [&network, plan_for = std::move(job.plan_for)](const std::vector<Rank>& left) {
      return emulate::emulated_plan(plan_for(left), network);
    };
  }
  if (job.on_measured) {
    job.on_measured =
        [&network, on_measured = std::move(job.on_measured)](const runtime::StepMeasurement& step) {
          auto better = on_measured(step);
          if (better) {
            better->plan = emulate::emulated_plan(std::move(better->plan), network);
          }
          return better;
        };
  }
  if (job.on_replan) {
    job.on_replan = [&network, on_replan = std::move(job.on_replan)] {
      auto offer = on_replan();
      if (offer.plan) {
        offer.plan = emulate::emulated_plan(*std::move(offer.plan), network);
      }
      return offer;
    };
  }
}

runtime::JobResult interrupted_job(int signal, const char* meanwhile) {
  runtime::JobResult result;
  result.reason = fmt::format("interrupted while {}", meanwhile);
  result.exit_status = kSignalBase + signal;
  return result;
}

/// Files that were given count instead of what would be measured.
MachineCosts costs_of(Session& session, const emulate::EmulatedNetwork& network,
                      const PlanlessTraining& asked, const runtime::InterruptGuard& interrupts) {
  MachineCosts costs;
  if (asked.calibration.empty() || asked.workload.empty()) {
    const TemporaryFolder folder;
    const ProgressBar bar("measuring this machine", session.progress_elsewhere());
    costs =
        measure_costs(network, load_built_in_training(session, asked.training), folder, interrupts);
  }
  if (!asked.calibration.empty()) {
    costs.calibration = plan::read_calibration(asked.calibration);
    session.add_input(asked.calibration);
  }
  if (!asked.workload.empty()) {
    costs.workload = load_workload(session, asked.workload);
  }
  return costs;
}

/// Leaves plan and prediction in `planned`. Throws Interrupted.
void plan_training(Session& session, const topology::Topology& cluster,
                   const emulate::EmulatedNetwork& network, const PlanlessTraining& asked,
                   const runtime::InterruptGuard& interrupts, PlannedJob& planned) {
  const MachineCosts costs = costs_of(session, network, asked, interrupts);
  const topology::Topology machine = machine_as_network(cluster, network.plan(), costs.calibration);
  planned.plan = plan_for_network(machine, costs, session.seed);
  planned.predicted =
      predict_training(planned.plan, costs.workload, machine, costs.calibration, asked.synchrony);
  require_no_interrupt(interrupts);
  session.note(fmt::format(
      "note: planned for this network: {} buckets{}, {} per step predicted",
      planned.plan.buckets.size(),
      planned.plan.schedules.empty() ? "" : ", schedule " + planned.plan.schedules.front().name(),
      to_string(planned.predicted->step_time)));
}

}  // namespace

void require_no_interrupt(const runtime::InterruptGuard& interrupts) {
  if (interrupts.received() != 0) {
    throw Interrupted{interrupts.received()};
  }
}

void require_two_ranks(const topology::Topology& cluster, const std::string& file) {
  if (cluster.rank_count() < 2) {
    throw ConfigError(
        ErrorContext{file, "ranks", std::to_string(cluster.rank_count()), "two at least"});
  }
}

BuiltInTraining load_built_in_training(Session& session, const std::string& name_or_path,
                                       std::int64_t local_batch) {
  BuiltInTraining training{
      .file = training_file(name_or_path), .text = {}, .local_batch = local_batch};
  training.text = read_file(training.file);
  session.add_input(training.file);
  const trainer::TrainingConfig config =
      trainer::parse_training_config(training.text, training.file);
  if (training.local_batch == 0) {
    training.local_batch = config.local_batch;
  }
  return training;
}

MachineCosts measure_costs(const emulate::EmulatedNetwork& network, const BuiltInTraining& training,
                           const TemporaryFolder& folder,
                           const runtime::InterruptGuard& interrupts) {
  constexpr std::size_t kFewest = 2;
  constexpr std::size_t kMost = 64;
  const std::size_t workers = std::clamp(network.plan().host_of_rank.size(), kFewest, kMost);
  const std::string machine = folder.file("machine.json");
  const std::string workload = folder.file("workload.yaml");
  runtime::ChildProcesses children([](std::size_t, std::string_view) {});
  runtime::ChildCommand command;
  command.words = runtime::own_program();
  command.words.insert(command.words.end(),
                       {"calibrate", "--workers", std::to_string(workers), "-o", machine,
                        "--training", training.file.string(), "--local-batch",
                        std::to_string(training.local_batch), "--workload-output", workload});
  network.place(command, Rank(0));
  children.start(command);
  std::vector<runtime::ChildEnd> ends;
  while (ends.empty()) {
    ends = children.wait_for(1_s, interrupts.file_descriptor());
    require_no_interrupt(interrupts);
  }
  if (!ends.front().ok()) {
    throw RuntimeFailure(fmt::format("measuring this machine {}: {}", describe(ends.front()),
                                     ends.front().last_line));
  }
  return {plan::read_calibration(machine),
          plan::read_workload_text(read_file(workload), std::filesystem::path(workload))};
}

plan::Plan plan_for_network(const topology::Topology& machine, const MachineCosts& costs,
                            std::uint64_t seed, const std::optional<plan::Codec>& codec) {
  sim::SimulationOptions simulation;
  simulation.device_rates = costs.calibration.rates;
  const auto cost_model = sim::make_cost_model(machine, simulation);
  planner::PlannerOptions wanted;
  wanted.seed = seed;
  wanted.local_batch = costs.workload.profiled_batch;
  wanted.compare_baselines = false;
  wanted.effort = planner::SearchEffort::kQuick;
  wanted.codec = codec;
  return planner::make_plan(machine, costs.workload, *cost_model, wanted);
}

runtime::JobResult run_in_network(const emulate::EmulatedNetwork& network, const plan::Plan& plan,
                                  runtime::JobOptions job) {
  job.listen = {emulate::kLeaderAddress, 0};
  job.is_network_private = true;
  job.place_worker = [&network](Rank rank, runtime::ChildCommand& command) {
    network.place(command, rank);
  };
  const emulate::InNamespace inside(network.management());
  return runtime::run_local_job(plan, job);
}

EmulatedJob run_emulated_job(Session& session, const plan::Plan& plan,
                             const emulate::NetworkPlan& network_plan, runtime::JobOptions job) {
  EmulatedJob done;
  std::optional<runtime::InterruptGuard> interrupts(std::in_place);
  const emulate::EmulatedNetwork network = built_network(session, network_plan);
  done.links = links_json(network.plan(), check_emulation(session, network, *interrupts));
  if (interrupts->received() != 0) {
    done.result = interrupted_job(interrupts->received(), "the emulated network was measured");
    return done;
  }
  interrupts.reset();  // the job has its own
  emulate_later_plans(network.plan(), job);
  done.result =
      run_in_network(network, emulate::emulated_plan(plan, network.plan()), std::move(job));
  return done;
}

PlannedJob run_planned_job(Session& session, const topology::Topology& cluster,
                           const emulate::NetworkPlan& network_plan, const PlanlessTraining& asked,
                           runtime::JobOptions job) {
  PlannedJob planned;
  std::optional<runtime::InterruptGuard> interrupts(std::in_place);
  const emulate::EmulatedNetwork network = built_network(session, network_plan);
  planned.job.links = links_json(network.plan(), check_emulation(session, network, *interrupts));
  try {
    require_no_interrupt(*interrupts);
    plan_training(session, cluster, network, asked, *interrupts, planned);
  } catch (const Interrupted& interrupted) {
    planned.job.result =
        interrupted_job(interrupted.signal, "the training was planned for the emulated network");
    return planned;
  }
  interrupts.reset();  // the job has its own
  planned.job.result = run_in_network(network, planned.plan, std::move(job));
  return planned;
}

}  // namespace rackrail::cli
