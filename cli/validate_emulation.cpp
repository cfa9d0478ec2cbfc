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
#include "cli/calibration.hpp"
#include "cli/comparison.hpp"
#include "cli/emulation.hpp"
#include "cli/local_prediction.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"
#include "cli/temporary_folder.hpp"
#include "plan/format.hpp"
#include "planner/collective_forms.hpp"
#include "planner/planner.hpp"
#include "planner/schedule_family.hpp"
#include "planner/schedule_table.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/emulate/commands.hpp"
#include "runtime/emulate/rank_commands.hpp"
#include "runtime/launch/job.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

namespace emulate = runtime::emulate;

constexpr Bytes kSmallest = 1_KiB;
constexpr Bytes kLargest = 64_MiB;
constexpr std::int64_t kGrowth = 4;
constexpr const char* kTraining = "digits-mlp";

/// Thrown from where a signal was noticed, to end everything in order.
struct Interrupted {};

void require_time(const runtime::InterruptGuard& interrupts) {
  if (interrupts.received() != 0) {
    throw Interrupted();
  }
}

struct MachineCosts {
  Calibration calibration;
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
  command.words = {"/proc/self/exe",        "calibrate", "--workers",
                   std::to_string(workers), "-o",        machine,
                   "--workload-output",     workload};
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
  return {read_calibration(machine),
          plan::read_workload_text(read_file(workload), std::filesystem::path(workload))};
}

/// The emulated network with ranks that share the cores of this machine.
topology::Topology machine_as_network(const topology::Topology& original,
                                      const emulate::NetworkPlan& plan,
                                      const Calibration& calibration) {
  using topology::NodeKind;
  // Two links are the least that a message between two hosts crosses, and what calibration saw.
  constexpr double kPerLink = 0.5;
  topology::Topology network =
      emulate::emulated_topology(original, plan,
                                 {.payload_share = emulate::kPayloadShare,
                                  .latency = scaled(calibration.latency, kPerLink),
                                  .overhead = calibration.message_overhead,
                                  .inside = calibration.core_bandwidth});
  const NodeId from = network.add_node({.name = "cores-in", .kind = NodeKind::kSwitch});
  const NodeId to = network.add_node({.name = "cores-out", .kind = NodeKind::kSwitch});
  const auto cores = static_cast<std::int64_t>(calibration.cores);
  const LinkId shared =
      network.add_link({.from = from,
                        .to = to,
                        .bandwidth = calibration.core_bandwidth * cores,
                        .kind = topology::LinkKind::kShared,
                        .tier = "cores",
                        .cpu_share = 1.0 / static_cast<double>(calibration.cores)});
  for (std::size_t r = 0; r < network.rank_count(); ++r) {
    network.set_processor(Rank(r), shared);
  }
  return network;
}

/// An all-reduce of each size as a bucket of one plan, and what it is predicted to take.
struct CollectivePlan {
  plan::Plan plan;
  std::vector<Compared> cases;  ///< by bucket; not measured yet
};

CollectivePlan plan_collectives(const topology::Topology& network,
                                const sim::SimulationOptions& simulation) {
  const auto cost_model = sim::make_cost_model(network, simulation);
  planner::ScheduleTableOptions wanted;
  wanted.smallest = kSmallest;
  wanted.largest = kLargest;
  const planner::ScheduleTable table = planner::make_schedule_table(network, *cost_model, wanted);
  topology::Router router(network);
  CollectivePlan result;
  result.plan.name = "all-reduces";
  result.plan.cluster_name = network.name();
  result.plan.cluster_digest = network.digest();
  for (std::size_t r = 0; r < network.rank_count(); ++r) {
    result.plan.rank_names.push_back(network.node(network.node_of(Rank(r))).name);
  }
  result.plan.batch.local_batch.assign(network.rank_count(), 1);  // a plan has one, used or not
  std::vector<std::pair<std::string, std::size_t>> made;  // by schedule of the plan: family, form
  for (Bytes size = kSmallest; size <= kLargest; size = size * kGrowth) {
    const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                  [&](const planner::TableRow& one) { return one.bytes == size; });
    if (row == table.rows.end()) {
      throw SimulationError("the table of schedules has no row of " + to_string(size));
    }
    const std::string& family = table.families[row->best];
    const planner::TableTime& best = row->times[row->best];
    auto known = std::find(made.begin(), made.end(), std::pair(family, best.form));
    if (known == made.end()) {
      auto forms = planner::collective_forms(planner::schedule_family(family),
                                             plan::Collective::kAllReduce, network, router, {});
      result.plan.schedules.push_back(std::move(forms.at(best.form)));
      known = made.insert(made.end(), {family, best.form});
    }
    plan::Bucket bucket;
    bucket.tensors = {static_cast<std::uint32_t>(result.plan.buckets.size())};
    bucket.elements = size.count() / 4;
    bucket.schedule = static_cast<std::uint32_t>(known - made.begin());
    bucket.slice_elements = best.slice_elements;
    const sim::CollectiveResult simulated =
        sim::simulate_collective(result.plan.schedules[bucket.schedule], bucket.elements,
                                 bucket.slice_elements, network, simulation);
    result.cases.push_back(
        {.what = to_string(size), .how = family, .predicted = simulated.time, .measured = {}});
    result.plan.buckets.push_back(std::move(bucket));
  }
  return result;
}

/// Fills in what the ranks measured.
void execute_collectives(const emulate::EmulatedNetwork& network, const TemporaryFolder& folder,
                         const runtime::InterruptGuard& interrupts, CollectivePlan& collectives) {
  const std::string file = folder.file("collectives.json");
  plan::save_plan(collectives.plan, file);
  std::vector<std::string> last_lines(network.plan().host_of_rank.size());
  emulate::RankCommandOptions run;
  run.words = {"/proc/self/exe", "collectives", file};
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

/// A plan for the built-in model on the network, its predicted and its measured step.
Compared compare_step(const topology::Topology& machine, const emulate::EmulatedNetwork& network,
                      const plan::Workload& workload, sim::SimulationOptions simulation,
                      std::int64_t steps, std::uint64_t seed) {
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
  return compared;
}

}  // namespace

void validate_by_emulation(Session& session, const EmulationValidation& options) {
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
    CollectivePlan collectives = plan_collectives(machine, simulation);
    execute_collectives(network, folder, *interrupts, collectives);
    interrupts.reset();  // the training has its own
    const Compared step =
        compare_step(machine, network, costs.workload, simulation, options.steps, session.seed);

    double worst = std::abs(step.error());
    double logarithms = std::abs(std::log1p(step.error()));
    for (const Compared& one : collectives.cases) {
      worst = std::max(worst, std::abs(one.error()));
      logarithms += std::abs(std::log1p(one.error()));
    }
    const double mean = std::expm1(logarithms / static_cast<double>(collectives.cases.size() + 1));
    if (session.json) {
      nlohmann::json json = links_json(network.plan(), checked);
      json["collectives"] = nlohmann::json::array();
      for (const Compared& one : collectives.cases) {
        json["collectives"].push_back(to_json(one));
      }
      json["step"] = to_json(step);
      json["calibration"] = nlohmann::json::parse(to_json(costs.calibration));
      json["worst_relative_error"] = worst;
      json["geomean_relative_error"] = mean;
      session.print_json(json);
    } else {
      fmt::print("{}\n{}\n{}\ngeometric-mean error {}, worst {} (load {:.1f} before)\n",
                 links_table(network.plan(), checked),
                 comparison_table("all-reduce", collectives.cases),
                 comparison_table("training", {step}), percent(mean), percent(worst), checked.load);
    }
    const bool is_missed = worst > options.worst_allowed || mean > options.mean_allowed;
    session.status = checked.is_held && !is_missed ? kDone : kNotMet;
  } catch (const Interrupted&) {
    session.note("interrupted");
    const int number = interrupts ? interrupts->received() : 0;
    session.status = kSignalBase + (number != 0 ? number : 2);
  }
}

}  // namespace rackrail::cli
