#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/config_tree.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/collective.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/job_inputs.hpp"
#include "cli/progress.hpp"
#include "cli/record_files.hpp"
#include "cli/session.hpp"
#include "cli/simulation_json.hpp"
#include "cli/simulation_notes.hpp"
#include "cli/simulation_text.hpp"
#include "cli/table.hpp"
#include "cli/trace.hpp"
#include "cli/usage.hpp"
#include "explore/outages.hpp"
#include "plan/format.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "sim/jobs.hpp"
#include "sim/scenario.hpp"
#include "sim/simulator.hpp"
#include "topology/queries.hpp"

namespace rackrail::cli {

namespace {

constexpr int kMostSteps = 1'000'000;
constexpr int kMostConnections = 256;

struct SimulateOptions {
  std::string target;  ///< a plan file or a cluster
  std::string plan;
  ClusterOptions cluster;
  std::string workload;
  CollectiveOptions collective;
  RecordFiles files;
  std::string network;  ///< empty: the scenario's, or flow
  std::string scenario;
  std::string multipath;            ///< empty: as the scenario says, else pinned
  int connections = 0;              ///< 0: as the scenario says, else 1
  std::vector<std::string> packet;  ///< NAME=VALUE
  int steps = 0;                    ///< 0: as the scenario says, else 1
  std::string step = "last";        ///< which of them is reported
  bool has_seed = false;            ///< on the command line
  bool every_flow = false;
  std::string of_collectives;  ///< --bytes or --slice, if one of them was given

  sim::Scenario read(Session& session, const topology::Topology& on) const;
  sim::SimulationOptions simulation(Session& session, const topology::Topology& on) const;
};

void set_packet_option(sim::PacketOptions& options, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) {
    throw ConfigError(ErrorContext{"<command line>", "--packet", fmt::format("'{}'", text),
                                   "NAME=VALUE, such as queue_capacity=16MiB"});
  }
  try {
    sim::set_packet_option(options, text.substr(0, equals),
                           ConfigValue::parse("<command line>", text.substr(equals + 1)));
  } catch (const ConfigError& error) {
    throw ConfigError(ErrorContext{"<command line>", "--packet " + text, error.context().found,
                                   error.context().expected});
  }
}

/// What the scenario says, and the command line more loudly.
sim::Scenario SimulateOptions::read(Session& session, const topology::Topology& on) const {
  sim::Scenario all;
  sim::SimulationOptions& options = all.options;
  if (!scenario.empty()) {
    all = sim::read_scenario(scenario, on);
    const std::filesystem::path file = scenario;
    session.add_inputs({&file, 1});
    session.add_inputs(sim::files_of_scenario(scenario, read_file(scenario)));
  }
  if (!network.empty()) {
    options.network = network == "packet" ? sim::NetworkLevel::kPacket : sim::NetworkLevel::kFlow;
  }
  if (!multipath.empty()) {
    options.multipath = *sim::parse_multipath(multipath);
  }
  if (connections > 0) {
    options.connections = connections;
    if (connections > 1 && options.multipath != sim::Multipath::kEcmp) {
      throw ConfigError(ErrorContext{"<command line>", "--connections",
                                     "several connections without hashed routes",
                                     "--multipath ecmp"});
    }
  }
  for (const std::string& text : packet) {
    set_packet_option(options.packets, text);
  }
  if (!packet.empty() && options.network != sim::NetworkLevel::kPacket) {
    throw ConfigError(
        ErrorContext{"<command line>", "--packet", "the flow level", "--network packet"});
  }
  if (all.sets_packets && options.network != sim::NetworkLevel::kPacket) {
    throw ConfigError(ErrorContext{scenario, "packets", "the flow level",
                                   "'network: packet' beside it, or --network packet"});
  }
  if (steps > 0) {
    options.steps = steps;
  }
  const std::optional<sim::StepChoice> choice = sim::parse_step_choice(step);
  if (!choice || (choice->kind == sim::StepChoice::Kind::kNumber &&
                  choice->number >= std::max(options.steps, 1))) {
    throw ConfigError(ErrorContext{"<command line>", "--step", fmt::format("'{}'", step),
                                   fmt::format("last, slowest, median or a number from 0 to {}",
                                               std::max(options.steps, 1) - 1)});
  }
  options.report = *choice;
  options.use_symmetry = !every_flow;
  if (has_seed) {
    options.disturbances.seed = session.seed;
    options.packets.seed = session.seed;
  } else {
    session.seed = options.disturbances.seed;
  }
  return all;
}

/// What a scenario says of steps has no meaning for a bare collective, and is not passed over.
void refuse_keys_of_steps(const std::string& scenario) {
  const ConfigValue root = ConfigValue::parse(scenario, read_file(scenario));
  for (const char* const key :
       {"jobs", "placement", "steps", "staleness", "local_steps", "asynchronous", "loading",
        "slow_devices", "outages", "duration", "checkpoint_every"}) {
    if (root.find(key) != nullptr) {
      throw ConfigError(ErrorContext{scenario, key, "what concerns steps, for a bare collective",
                                     "a plan to simulate with it"});
    }
  }
}

/// For what is simulated alone on the cluster.
sim::SimulationOptions SimulateOptions::simulation(Session& session,
                                                   const topology::Topology& on) const {
  return read(session, on).options;
}

std::optional<explore::OutageResult> simulate_outages(const Session& session,
                                                      const SimulateOptions& options,
                                                      const PlanInput& input,
                                                      const sim::SimulationOptions& simulation,
                                                      ProgressBar& bar) {
  if (options.scenario.empty()) {
    return std::nullopt;
  }
  const ConfigValue root = ConfigValue::parse(options.scenario, read_file(options.scenario));
  const auto scenario = explore::read_outages(root, input.cluster);
  if (!scenario) {
    return std::nullopt;
  }
  planner::PlannerOptions planning;
  planning.seed = session.seed;
  planning.compare_baselines = false;
  planning.progress = [&bar](double share, const std::string& what) {
    bar.update(share, "planning for what is left: " + what);
  };
  return explore::simulate_outages(input.plan, input.workload, input.cluster, *scenario, planning,
                                   simulation);
}

/// What is left out or assumed.
std::vector<std::string> notes_on_input(const PlanInput& input, sim::NetworkLevel level) {
  std::vector<std::string> notes = simulation_notes(input.cluster, level, &input.workload);
  if (const std::int64_t steps = input.plan.compression_warmup_steps; steps > 0) {
    notes.push_back(
        fmt::format("times are of steps with compression; the first {} send FP32 and take {}",
                    steps, to_string(input.plan.prediction.warmup_step_time)));
  }
  return notes;
}

void run_asynchronous(Session& session, const PlanInput& input,
                      const sim::SimulationOptions& simulation, ProgressBar& bar) {
  const sim::AsynchronousResult result =
      sim::simulate_asynchronous(input.plan, input.workload, input.cluster, simulation);
  bar.clear();
  const std::vector<std::string> notes =
      say_notes(session, input.cluster, notes_on_input(input, simulation.network));
  if (session.json) {
    nlohmann::json times = nlohmann::json::array();
    for (const Duration time : result.step_times) {
      times.push_back(time.seconds());
    }
    session.print_json({{"step_times_s", times},
                        {"samples_per_s", result.samples_per_s},
                        {"staleness_updates", result.staleness},
                        {"conflict_rate", result.conflict_rate},
                        {"notes", notes}});
    return;
  }
  fmt::print("{} on {}, asynchronous, {} steps of each rank\n\n", input.workload.name,
             input.cluster.name(), simulation.steps);
  Table table({{"rank", Align::kRight}, {"step time", Align::kRight}});
  for (std::size_t r = 0; r < result.step_times.size(); ++r) {
    table.add_row({std::to_string(r), to_string(result.step_times[r])});
  }
  fmt::print("{}\n{:.1f} samples/s; {} of the updates met newer parameters ({:.2f} on average)\n",
             table.to_string(), result.samples_per_s, percent(result.conflict_rate),
             result.staleness);
}

void run_jobs(Session& session, const SimulateOptions& options) {
  for (const auto& [name, file] : {std::pair("--flows", options.files.flows),
                                   {"--links", options.files.links},
                                   {"--step", options.step == "last" ? "" : options.step}}) {
    if (!file.empty()) {
      throw ConfigError(ErrorContext{"<command line>", name, "several jobs",
                                     "a scenario without 'jobs' and 'placement', or --trace"});
    }
  }
  ClusterOptions source = options.cluster;
  if (source.cluster.empty()) {
    source.cluster = plan::load_unverified(options.plan).cluster_name;
  }
  const topology::Topology cluster = source.load(session);
  sim::Scenario scenario = options.read(session, cluster);
  const std::vector<sim::Job> jobs =
      load_jobs(session, options.plan, options.workload, scenario, cluster);
  session.add_output(options.files.trace);
  scenario.options.record_timeline = !options.files.trace.empty();
  ProgressBar bar("simulating", session.progress_elsewhere());
  scenario.options.progress = [&bar](double share) { bar.update(share); };
  const auto start = std::chrono::steady_clock::now();
  const sim::JobsResult result = sim::simulate_jobs(jobs, cluster, scenario.options);
  const double wall = seconds_since(start);
  bar.clear();
  if (!options.files.trace.empty()) {
    std::vector<TraceProcess> processes;
    for (const sim::JobResult& job : result.jobs) {
      processes.push_back({"simulated: " + job.name, job.timeline});
    }
    write_file_atomically(options.files.trace, to_trace_json(processes));
  }
  const std::vector<std::string> notes =
      say_notes(session, cluster, simulation_notes(cluster, scenario.options.network));
  if (session.json) {
    nlohmann::json answer = jobs_json(cluster, result);
    answer["notes"] = notes;
    answer["wall_s"] = wall;
    answer["peak_rss_bytes"] = peak_rss_bytes();
    session.print_json(answer);
    return;
  }
  print_jobs(cluster, result, wall);
  options.files.print_written();
}

/// Whether the scenario says where the plan's ranks are, or has jobs beside it.
bool has_jobs(const SimulateOptions& options) {
  if (options.scenario.empty()) {
    return false;
  }
  const ConfigValue root = ConfigValue::parse(options.scenario, read_file(options.scenario));
  if (root.find("jobs") == nullptr && root.find("placement") == nullptr) {
    return false;
  }
  if (const ConfigValue* outages = root.find("outages")) {
    outages->fail("outages beside jobs", "one of them");
  }
  return true;
}

void run_step(Session& session, const SimulateOptions& options) {
  if (has_jobs(options)) {
    run_jobs(session, options);
    return;
  }
  const PlanInput input = load_plan_input(session, options.plan, options.cluster, options.workload);
  sim::SimulationOptions simulation = options.simulation(session, input.cluster);
  ProgressBar bar("simulating", session.progress_elsewhere());
  simulation.progress = [&bar](double share) { bar.update(share); };
  if (simulation.is_asynchronous) {
    for (const auto& [option, file] :
         {std::pair("--trace", options.files.trace), std::pair("--flows", options.files.flows),
          std::pair("--links", options.files.links),
          std::pair("--step", options.step == "last" ? "" : options.step)}) {
      if (!file.empty()) {
        throw ConfigError(ErrorContext{"<command line>", option, "an asynchronous scenario",
                                       "a scenario whose ranks are synchronous"});
      }
    }
    run_asynchronous(session, input, simulation, bar);
    return;
  }
  options.files.add_outputs(session);
  options.files.ask(simulation);
  const auto start = std::chrono::steady_clock::now();
  const sim::StepResult result =
      sim::simulate_step(input.plan, input.workload, input.cluster, simulation);
  const std::optional<explore::OutageResult> outages =
      simulate_outages(session, options, input, simulation, bar);
  const double wall = seconds_since(start);
  bar.clear();
  options.files.write(result.records, input.cluster, simulation.disturbances,
                      "simulated: " + input.plan.name);
  const std::vector<std::string> notes =
      say_notes(session, input.cluster, notes_on_input(input, simulation.network));
  if (!session.json) {
    print_step(input, result, simulation, wall);
    if (outages) {
      print_outages(*outages);
    }
    options.files.print_written();
    return;
  }
  nlohmann::json answer = step_json(input, result, simulation.loading.has_value());
  answer["notes"] = notes;
  answer["wall_s"] = wall;
  answer["peak_rss_bytes"] = peak_rss_bytes();
  if (outages) {
    answer["outages"] = outages_json(*outages);
  }
  session.print_json(answer);
}

/// An MSCCL program, on the cluster beside it.
void run_foreign(Session& session, SimulateOptions options) {
  if (!options.plan.empty() || !options.collective.collective.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "simulate", options.target + " and another",
                                   "one: the file says which collective it is"});
  }
  if (options.cluster.cluster.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "simulate", options.target + " alone",
                                   "--cluster with the cluster that it runs on"});
  }
  options.collective.graph =
      std::make_shared<plan::TransferGraph>(load_foreign_schedule(session, options.target));
  const topology::Topology cluster = options.cluster.load(session);
  run_collective(session, cluster, options.collective, options.simulation(session, cluster),
                 options.files);
}

void run_simulate(Session& session, SimulateOptions options) {
  if (is_foreign_schedule(options.target)) {
    run_foreign(session, std::move(options));
    return;
  }
  const bool is_collective = !options.collective.collective.empty();
  if (is_collective && !options.target.empty() && !options.cluster.cluster.empty()) {
    throw ConfigError(ErrorContext{
        "<command line>", "--cluster",
        fmt::format("'{}' beside '{}'", options.cluster.cluster, options.target), "one cluster"});
  }
  if (!options.target.empty()) {
    if (!options.plan.empty() || !options.collective.collective.empty()) {
      options.cluster.cluster = options.target;
    } else if (is_cluster(options.target)) {
      throw ConfigError(ErrorContext{"<command line>", "simulate",
                                     fmt::format("the cluster '{}' alone", options.target),
                                     "--collective all-reduce or --plan beside it"});
    } else {
      options.plan = options.target;
    }
  }
  if (!options.plan.empty()) {
    if (!options.of_collectives.empty()) {
      throw ConfigError(ErrorContext{"<command line>", options.of_collectives, "a plan",
                                     "--collective, or an MSCCL program: a plan has its own"});
    }
    run_step(session, options);
    return;
  }
  if (options.collective.collective.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "simulate", "neither a plan nor --collective",
                                   "a plan file, or a cluster with --collective all-reduce"});
  }
  if (options.cluster.cluster.empty()) {
    throw ConfigError(
        ErrorContext{"<command line>", "simulate", "no cluster", "a cluster file or name"});
  }
  const topology::Topology cluster = options.cluster.load(session);
  if (!options.scenario.empty()) {
    refuse_keys_of_steps(options.scenario);
  }
  run_collective(session, cluster, options.collective, options.simulation(session, cluster),
                 options.files);
}

}  // namespace

void add_simulate_command(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("simulate", "Simulate a training step of a plan, or one collective");
  add_common_options(*command, session);
  const auto options = std::make_shared<SimulateOptions>();
  command->add_option("target", options->target,
                      "Plan file; a cluster, with --collective or --plan; or an MSCCL program, "
                      "with --cluster");
  CLI::Option* plan = command->add_option("--plan", options->plan,
                                          "Plan file, if the first argument is its cluster");
  command->add_option("--cluster", options->cluster.cluster,
                      "Cluster file of the plan; not needed for a shipped cluster");
  options->cluster.add_to(*command);
  options->cluster.add_calibration_to(*command);
  // What would be ignored is refused.
  CLI::Option* collective = command->add_option("--collective", options->collective.collective,
                                                "all-reduce, reduce-scatter or all-gather");
  collective->excludes(plan);
  command
      ->add_option("--workload,--model", options->workload,
                   "Workload file of the plan; not needed for a shipped model")
      ->excludes(collective);
  command
      ->add_option("--steps", options->steps,
                   "Number of steps to simulate. Default: the scenario's, else 1")
      ->check(CLI::Range(1, kMostSteps))
      ->excludes(collective);
  command
      ->add_option("--step", options->step,
                   "Step that is reported: last, slowest, median or a number from 0")
      ->excludes(collective)
      ->capture_default_str();
  command->add_option("--scenario", options->scenario,
                      "YAML file of faults (slow devices, cut links, background traffic) and of "
                      "how ranks wait for each other");
  command->add_option("--trace", options->files.trace,
                      "Trace to write; open it at ui.perfetto.dev");
  command->add_option("--flows", options->files.flows,
                      "CSV file to write: every message of the step or collective");
  command->add_option("--links", options->files.links,
                      "CSV file to write: use of every link over time, in 200 equal intervals");
  command
      ->add_option(
          "--bytes,--size", options->collective.bytes,
          "Size of each rank's buffer, e.g. '1 GiB': what is summed, or all that is gathered")
      ->capture_default_str();
  command
      ->add_option("--schedule", options->collective.schedule,
                   "Schedule family, e.g. ring; 'rackrail info' lists them. best: look for "
                   "the fastest of all")
      ->capture_default_str()
      ->needs(collective);
  add_search_option(*command, options->collective.search);
  command->add_option("--codec", options->collective.codec, "Codec of every transfer, e.g. fp16")
      ->capture_default_str()
      ->needs(collective);
  options->collective.decisions->add_to(*command)->needs(collective);
  command->add_option(
      "--slice", options->collective.slice,
      "Size of the pieces in which messages are pipelined, e.g. '1 MiB'. Default: 1 "
      "MiB; for rings and --schedule best the fastest");
  command
      ->add_flag("--every-flow", options->every_flow,
                 "Simulate every flow of a collective. By default identical parts of the cluster "
                 "are simulated once")
      ->needs(collective);
  command
      ->add_option("--network", options->network,
                   "flow: messages share links fairly, fast. packet: packets, queues and "
                   "congestion control, for small cases")
      ->check(CLI::IsMember({"flow", "packet"}))
      ->default_str("flow, or the scenario's");
  command
      ->add_option("--packet", options->packet,
                   "Option of --network packet, e.g. queue_capacity=16MiB or dcqcn.gain=0.01. May "
                   "be repeated. Names: " +
                       sim::packet_option_names())
      ->take_all();
  command
      ->add_option("--multipath", options->multipath,
                   "pinned: the plan's routes. ecmp: one of the shortest routes per pair of ranks, "
                   "by hash. spray: packets over all shortest routes")
      ->check(CLI::IsMember({"pinned", "ecmp", "spray"}));
  command
      ->add_option("--connections", options->connections,
                   "With --multipath ecmp: connections per pair of ranks, each hashed on its own. "
                   "Default: 1")
      ->check(CLI::Range(1, kMostConnections));
  command->footer(
      "Examples: rackrail simulate plan.json --trace step.json\n"
      "          rackrail simulate a100-8x8 --collective all-reduce --bytes 1GiB --schedule ring\n"
      "          rackrail simulate allreduce.xml --cluster my-cluster.csv --bytes 64MiB");
  command->callback([&session, options, command] {
    session.command = "simulate";
    options->has_seed = command->count("--seed") > 0;
    for (const char* option : {"--bytes", "--slice"}) {
      if (command->count(option) > 0) {
        options->of_collectives = option;
      }
    }
    run_simulate(session, *options);
  });
}

}  // namespace rackrail::cli
