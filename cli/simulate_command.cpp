#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "base/config_tree.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/health.hpp"
#include "cli/inputs.hpp"
#include "cli/session.hpp"
#include "cli/simulation_csv.hpp"
#include "cli/table.hpp"
#include "cli/trace.hpp"
#include "explore/outages.hpp"
#include "planner/schedule_family.hpp"
#include "sim/scenario.hpp"
#include "sim/simulator.hpp"
#include "topology/queries.hpp"

namespace rackrail::cli {

namespace {

constexpr std::size_t kRowsShown = 12;
constexpr std::size_t kTimelineBins = 200;
constexpr int kMostSteps = 1'000'000;
constexpr std::int64_t kBytesPerElement = 4;
constexpr double kBytesPerKibibyte = 1024;

struct SimulateOptions {
  std::string target;  ///< a plan file or a cluster
  std::string plan;
  ClusterOptions cluster;
  std::string workload;
  std::string collective;
  std::string bytes = "1 GiB";
  std::string schedule = "ring";
  std::string codec = "none";
  std::string slice = "1 MiB";
  std::string trace;
  std::string flows;
  std::string links;
  std::string network = "flow";
  std::string scenario;
  int steps = 0;  ///< 0: as the scenario says, else 1
  bool every_flow = false;

  sim::SimulationOptions simulation(Session& session, const topology::Topology& on) const;
};

/// What the scenario says, and the command line more loudly.
sim::SimulationOptions SimulateOptions::simulation(Session& session,
                                                   const topology::Topology& on) const {
  sim::SimulationOptions options;
  if (!scenario.empty()) {
    options = sim::read_scenario(scenario, on).options;
    const std::filesystem::path file = scenario;
    session.add_inputs({&file, 1});
  }
  if (network == "packet") {
    options.network = sim::NetworkLevel::kPacket;
  }
  if (steps > 0) {
    options.steps = steps;
  }
  options.use_symmetry = !every_flow;
  return options;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(static_cast<double>(usage.ru_maxrss) * kBytesPerKibibyte);
}

nlohmann::json links_json(const topology::Topology& cluster,
                          const std::vector<sim::LinkUse>& links) {
  nlohmann::json list = nlohmann::json::array();
  for (const sim::LinkUse& use : links) {
    list.push_back({{"name", cluster.link_name(use.link)},
                    {"tier", cluster.link(use.link).tier},
                    {"bytes", use.bytes.count()},
                    {"utilization", use.utilization}});
  }
  return list;
}

nlohmann::json queues_json(const topology::Topology& cluster,
                           const std::vector<sim::QueueUse>& queues) {
  nlohmann::json list = nlohmann::json::array();
  for (const sim::QueueUse& use : queues) {
    list.push_back({{"name", cluster.link_name(use.link)},
                    {"longest_bytes", use.longest.count()},
                    {"marks", use.marks},
                    {"pauses", use.pauses}});
  }
  return list;
}

std::string busiest_links(const topology::Topology& cluster, std::vector<sim::LinkUse> links) {
  std::stable_sort(links.begin(), links.end(), [](const sim::LinkUse& a, const sim::LinkUse& b) {
    return a.utilization > b.utilization;
  });
  Table table(
      {{"busiest links"}, {"tier"}, {"bytes", Align::kRight}, {"utilisation", Align::kRight}});
  for (std::size_t i = 0; i < std::min(kRowsShown, links.size()); ++i) {
    table.add_row({cluster.link_name(links[i].link), cluster.link(links[i].link).tier,
                   to_string(links[i].bytes), percent(links[i].utilization)});
  }
  return table.to_string();
}

/// The longest queues; nothing where the network model has none.
std::string longest_queues(const topology::Topology& cluster, std::vector<sim::QueueUse> queues) {
  if (queues.empty()) {
    return "";
  }
  std::stable_sort(
      queues.begin(), queues.end(),
      [](const sim::QueueUse& a, const sim::QueueUse& b) { return a.longest > b.longest; });
  Table table({{"longest queues"},
               {"bytes", Align::kRight},
               {"marked packets", Align::kRight},
               {"pauses", Align::kRight},
               {"trimmed packets", Align::kRight}});
  for (std::size_t i = 0; i < std::min(kRowsShown, queues.size()); ++i) {
    table.add_row({cluster.link_name(queues[i].link), to_string(queues[i].longest),
                   std::to_string(queues[i].marks), std::to_string(queues[i].pauses),
                   std::to_string(queues[i].trims)});
  }
  return table.to_string() + "\n";
}

sim::CollectiveResult simulate_all_reduce(const planner::ScheduleFamily& family,
                                          const planner::TierCodecs& codecs,
                                          const topology::Topology& cluster, std::int64_t elements,
                                          std::int64_t slice_elements,
                                          const sim::SimulationOptions& options) {
  const auto regular = family.regular_all_reduce(cluster);
  if (regular != nullptr && !codecs.inside.is_lossy() &&
      elements >= static_cast<std::int64_t>(regular->chunk_count())) {
    return sim::simulate_collective(*regular, elements, slice_elements, cluster, options);
  }
  topology::Router router(cluster);
  return sim::simulate_collective(family.all_reduce({cluster, router, codecs}), elements,
                                  slice_elements, cluster, options);
}

void run_collective(Session& session, const SimulateOptions& options) {
  if (options.collective != "all-reduce") {
    throw ConfigError(ErrorContext{"<command line>", "--collective",
                                   fmt::format("'{}'", options.collective), "all-reduce"});
  }
  const topology::Topology cluster = options.cluster.load(session);
  const auto option = [](const char* name, const std::string& text, auto parse) {
    return named("<command line>", name, [&] { return parse(text); });
  };
  const Bytes size = option("--bytes", options.bytes, parse_bytes);
  const std::int64_t elements = size.count() / kBytesPerElement;
  if (elements == 0) {
    throw ConfigError(ErrorContext{"<command line>", "--bytes", fmt::format("'{}'", options.bytes),
                                   "at least one float (4 B)"});
  }
  const planner::ScheduleFamily& family = planner::schedule_family(options.schedule);
  const plan::Codec codec = option("--codec", options.codec, plan::parse_codec);
  const planner::TierCodecs codecs{codec, codec};
  if (const auto refusal = family.refusal(cluster, codecs)) {
    throw ConfigError(ErrorContext{"<command line>", "--schedule " + options.schedule,
                                   "a schedule that cannot be used here: " + *refusal,
                                   "another schedule or codec"});
  }
  const std::int64_t slice_elements = std::max<std::int64_t>(
      1024, option("--slice", options.slice, parse_bytes).count() / kBytesPerElement);
  const sim::SimulationOptions simulation = options.simulation(session, cluster);
  const auto start = std::chrono::steady_clock::now();
  const sim::CollectiveResult result =
      simulate_all_reduce(family, codecs, cluster, elements, slice_elements, simulation);
  const double wall = seconds_since(start);
  const auto n = static_cast<double>(cluster.rank_count());
  const auto moved = static_cast<double>(elements * kBytesPerElement);
  const double algbw = moved / result.time.seconds();
  const auto bound = topology::allreduce_bound(cluster);
  const double bound_s = static_cast<double>(plan::encoded_size(codec, elements).count()) /
                         static_cast<double>(bound.algbw.bytes_per_second());
  if (session.json) {
    session.print_json({{"time_s", result.time.seconds()},
                        {"algbw_Bps", algbw},
                        {"busbw_Bps", algbw * 2 * (n - 1) / n},
                        {"bound_s", bound_s},
                        {"links", links_json(cluster, result.links)},
                        {"queues", queues_json(cluster, result.queues)},
                        {"events", result.events},
                        {"flows", result.flows},
                        {"copies", result.copies},
                        {"wall_s", wall},
                        {"peak_rss_bytes", peak_rss_bytes()}});
    return;
  }
  fmt::print("{} of {} over {} ranks of {}, {}\n\n", options.collective, to_string(size),
             cluster.rank_count(), cluster.name(), family.name());
  Table table({{"time", Align::kRight},
               {"algbw", Align::kRight},
               {"busbw", Align::kRight},
               {"lower bound", Align::kRight},
               {"gap", Align::kRight}});
  table.add_row({to_string(result.time), to_string(Bandwidth(static_cast<std::int64_t>(algbw))),
                 to_string(Bandwidth(static_cast<std::int64_t>(algbw * 2 * (n - 1) / n))),
                 to_string(Duration::from_seconds(bound_s)),
                 fmt::format("{:+.1f} %", (result.time.seconds() / bound_s - 1) * 100)});
  fmt::print("{}\n{}\n{}{} flows, {} events, {:.3f} s of simulation\n", table.to_string(),
             busiest_links(cluster, result.links), longest_queues(cluster, result.queues),
             result.flows, result.events, wall);
  if (result.copies > 1) {
    fmt::print("each flow stands for {} alike (--every-flow simulates them all)\n", result.copies);
  }
}

double mean_step_seconds(const sim::StepResult& result) {
  return result.steps.back().end.seconds() / static_cast<double>(result.steps.size());
}

/// Samples per second of all ranks together, over all steps.
double throughput(const plan::Plan& plan, const sim::StepResult& result) {
  return static_cast<double>(plan.batch.global_batch()) / mean_step_seconds(result);
}

/// The steps together, and those that took longest.
void print_steps(const plan::Plan& plan, const sim::StepResult& result) {
  std::vector<std::size_t> order(result.steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto length = [&](std::size_t i) { return result.steps[i].end - result.steps[i].start; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  order.resize(std::min(order.size(), kRowsShown));
  std::sort(order.begin(), order.end());
  Table table({{"longest steps", Align::kRight},
               {"start", Align::kRight},
               {"time", Align::kRight},
               {"waited for data", Align::kRight}});
  for (const std::size_t i : order) {
    table.add_row({std::to_string(i), to_string(result.steps[i].start), to_string(length(i)),
                   to_string(result.steps[i].waited_for_data)});
  }
  fmt::print("{}{} steps, {} each on average, {:.1f} samples/s; what follows is the last one's\n\n",
             table.to_string(), result.steps.size(),
             to_string(Duration::from_seconds(mean_step_seconds(result))),
             throughput(plan, result));
}

void print_step(const PlanInput& input, const sim::StepResult& result, double wall) {
  fmt::print("{} on {}\n\n", input.workload.name, input.cluster.name());
  if (result.steps.size() > 1) {
    print_steps(input.plan, result);
  }
  Table parts({{"step time", Align::kRight},
               {"compute", Align::kRight},
               {"exposed synchronisation", Align::kRight},
               {"share", Align::kRight}});
  const plan::StepEstimate& estimate = result.estimate;
  parts.add_row({to_string(estimate.step_time), to_string(estimate.compute_time),
                 to_string(estimate.step_time - estimate.compute_time),
                 percent(estimate.sync_share)});
  fmt::print("{}", parts.to_string());
  for (const HealthFigure& figure : health(estimate)) {
    fmt::print("{} {}: {}{})\n", figure.what, percent(figure.value),
               figure.is_healthy ? "healthy (" : "not healthy (should be ", figure.limit);
  }
  fmt::print("\n");
  Table path({{"critical path"},
              {"from", Align::kRight},
              {"for", Align::kRight},
              {"of it sharing links", Align::kRight}});
  // The longest pieces, in the order in which they happened.
  std::vector<std::size_t> order(result.critical_path.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  const auto length = [&](std::size_t i) {
    return result.critical_path[i].end - result.critical_path[i].start;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  order.resize(std::min(order.size(), kRowsShown));
  std::sort(order.begin(), order.end());
  for (const std::size_t i : order) {
    const sim::PathPiece& piece = result.critical_path[i];
    path.add_row({piece.what, to_string(piece.start), to_string(piece.end - piece.start),
                  piece.waited > Duration() ? to_string(piece.waited) : ""});
  }
  fmt::print("{}", path.to_string());
  if (order.size() < result.critical_path.size()) {
    fmt::print("({} shorter pieces not shown)\n", result.critical_path.size() - order.size());
  }
  fmt::print("\n{}\n{}", busiest_links(input.cluster, result.links),
             longest_queues(input.cluster, result.queues));
  fmt::print("{} flows, {} events, {:.3f} s of simulation\n", result.flows, result.events, wall);
}

nlohmann::json health_json(const plan::StepEstimate& estimate) {
  nlohmann::json list = nlohmann::json::array();
  for (const HealthFigure& figure : health(estimate)) {
    list.push_back({{"what", figure.what},
                    {"share", figure.value},
                    {"limit", figure.limit},
                    {"healthy", figure.is_healthy}});
  }
  return list;
}

std::optional<explore::OutageResult> simulate_outages(const Session& session,
                                                      const SimulateOptions& options,
                                                      const PlanInput& input) {
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
  return explore::simulate_outages(input.plan, input.workload, input.cluster, *scenario, planning);
}

void print_outages(const explore::OutageResult& result) {
  Table table({{"the run"},
               {"from", Align::kRight},
               {"to", Align::kRight},
               {"ranks", Align::kRight},
               {"step time", Align::kRight},
               {"steps", Align::kRight},
               {"of them lost", Align::kRight}});
  for (const explore::Phase& phase : result.phases) {
    const bool trains = phase.steps > 0;
    table.add_row({phase.what, to_string(phase.start), to_string(phase.end),
                   trains ? std::to_string(phase.ranks) : "",
                   trains ? to_string(phase.step_time) : "",
                   trains ? std::to_string(phase.steps) : "",
                   phase.lost > 0 ? std::to_string(phase.lost) : ""});
  }
  fmt::print("\n{}goodput {:.1f} samples/s, {} of what an undisturbed run has\n", table.to_string(),
             result.samples_per_s,
             percent(result.samples_per_s / result.undisturbed_samples_per_s));
}

nlohmann::json outages_json(const explore::OutageResult& result) {
  nlohmann::json phases = nlohmann::json::array();
  for (const explore::Phase& phase : result.phases) {
    phases.push_back({{"what", phase.what},
                      {"start_s", phase.start.seconds()},
                      {"end_s", phase.end.seconds()},
                      {"ranks", phase.ranks},
                      {"step_time_s", phase.step_time.seconds()},
                      {"steps", phase.steps},
                      {"lost_steps", phase.lost}});
  }
  return {{"phases", phases},
          {"samples_per_s", result.samples_per_s},
          {"undisturbed_samples_per_s", result.undisturbed_samples_per_s}};
}

void run_asynchronous(Session& session, const PlanInput& input,
                      const sim::SimulationOptions& simulation) {
  const sim::AsynchronousResult result =
      sim::simulate_asynchronous(input.plan, input.workload, input.cluster, simulation);
  if (session.json) {
    nlohmann::json times = nlohmann::json::array();
    for (const Duration time : result.step_times) {
      times.push_back(time.seconds());
    }
    session.print_json({{"step_times_s", times},
                        {"samples_per_s", result.samples_per_s},
                        {"staleness_updates", result.staleness},
                        {"conflict_rate", result.conflict_rate}});
    return;
  }
  fmt::print("{} on {}, asynchronous, {} steps of each rank\n\n", input.workload.name,
             input.cluster.name(), simulation.steps);
  Table table({{"rank", Align::kRight}, {"step time", Align::kRight}});
  for (std::size_t r = 0; r < result.step_times.size(); ++r) {
    table.add_row({std::to_string(r), to_string(result.step_times[r])});
  }
  fmt::print("{}\n{:.1f} samples/s; {} of the updates met others' ({:.2f} on average)\n",
             table.to_string(), result.samples_per_s, percent(result.conflict_rate),
             result.staleness);
}

void run_step(Session& session, const SimulateOptions& options) {
  const PlanInput input = load_plan_input(session, options.plan, options.cluster, options.workload);
  sim::SimulationOptions simulation = options.simulation(session, input.cluster);
  if (simulation.is_asynchronous) {
    run_asynchronous(session, input, simulation);
    return;
  }
  simulation.record_timeline = !options.trace.empty();
  simulation.record_flows = !options.flows.empty() || !options.links.empty();
  const auto start = std::chrono::steady_clock::now();
  const sim::StepResult result =
      sim::simulate_step(input.plan, input.workload, input.cluster, simulation);
  const std::optional<explore::OutageResult> outages = simulate_outages(session, options, input);
  const double wall = seconds_since(start);
  if (!options.trace.empty()) {
    const TraceProcess process{"simulated: " + input.plan.name, result.timeline};
    write_file_atomically(options.trace, to_trace_json({&process, 1}));
  }
  if (!options.flows.empty()) {
    write_file_atomically(options.flows, flows_csv(result.flow_records, input.cluster));
  }
  if (!options.links.empty()) {
    const auto timeline = sim::link_timeline(result.flow_records, input.cluster, kTimelineBins);
    write_file_atomically(options.links, links_csv(timeline, input.cluster));
  }
  if (!session.json) {
    print_step(input, result, wall);
    if (outages) {
      print_outages(*outages);
    }
    if (!options.trace.empty()) {
      fmt::print("wrote {} (open it at ui.perfetto.dev)\n", options.trace);
    }
    for (const std::string& file : {options.flows, options.links}) {
      if (!file.empty()) {
        fmt::print("wrote {}\n", file);
      }
    }
    return;
  }
  nlohmann::json path = nlohmann::json::array();
  for (const sim::PathPiece& piece : result.critical_path) {
    path.push_back({{"what", piece.what},
                    {"start_s", piece.start.seconds()},
                    {"end_s", piece.end.seconds()},
                    {"waited_s", piece.waited.seconds()}});
  }
  nlohmann::json steps = nlohmann::json::array();
  for (const sim::StepSpan& step : result.steps) {
    steps.push_back({{"start_s", step.start.seconds()},
                     {"end_s", step.end.seconds()},
                     {"waited_for_data_s", step.waited_for_data.seconds()}});
  }
  nlohmann::json answer = {{"step_time_s", result.estimate.step_time.seconds()},
                           {"mean_step_time_s", mean_step_seconds(result)},
                           {"health", health_json(result.estimate)},
                           {"samples_per_s", throughput(input.plan, result)},
                           {"steps", steps},
                           {"compute_time_s", result.estimate.compute_time.seconds()},
                           {"sync_share", result.estimate.sync_share},
                           {"critical_path", path},
                           {"links", links_json(input.cluster, result.links)},
                           {"queues", queues_json(input.cluster, result.queues)},
                           {"events", result.events},
                           {"flows", result.flows},
                           {"wall_s", wall},
                           {"peak_rss_bytes", peak_rss_bytes()}};
  if (outages) {
    answer["outages"] = outages_json(*outages);
  }
  session.print_json(answer);
}

void run_simulate(Session& session, SimulateOptions options) {
  if (!options.target.empty()) {
    if (!options.plan.empty() || !options.collective.empty()) {
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
    run_step(session, options);
    return;
  }
  if (options.collective.empty()) {
    throw ConfigError(ErrorContext{"<command line>", "simulate", "neither a plan nor --collective",
                                   "a plan file, or a cluster with --collective all-reduce"});
  }
  if (options.cluster.cluster.empty()) {
    throw ConfigError(
        ErrorContext{"<command line>", "simulate", "no cluster", "a cluster file or name"});
  }
  run_collective(session, options);
}

}  // namespace

void add_simulate_command(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("simulate", "Simulate a plan's training step, or one bare collective");
  add_common_options(*command, session);
  const auto options = std::make_shared<SimulateOptions>();
  command->add_option("target", options->target, "Plan file; or a cluster, with --collective");
  command->add_option("--plan", options->plan, "Plan file, where the target is its cluster");
  command->add_option("--cluster", options->cluster.cluster,
                      "Cluster of the plan, where it is not a shipped one");
  options->cluster.add_to(*command);
  // What would be ignored is refused.
  CLI::Option* collective = command->add_option("--collective", options->collective, "all-reduce");
  command
      ->add_option("--workload,--model", options->workload,
                   "Workload of the plan, where it is not a shipped one")
      ->excludes(collective);
  command->add_option("--steps", options->steps, "Steps to simulate; the last one is reported")
      ->check(CLI::Range(1, kMostSteps))
      ->excludes(collective);
  command->add_option("--scenario", options->scenario,
                      "YAML file of what goes wrong, and of how ranks keep in step");
  command->add_option("--trace", options->trace, "Perfetto trace to write")->excludes(collective);
  command->add_option("--flows", options->flows, "CSV to write: each message of the last step")
      ->excludes(collective);
  command
      ->add_option("--links", options->links,
                   "CSV to write: utilisation of the links over the last step")
      ->excludes(collective);
  command->add_option("--bytes", options->bytes, "Size of the buffer on each rank")
      ->capture_default_str()
      ->needs(collective);
  command->add_option("--schedule", options->schedule, "Family, see rackrail info")
      ->capture_default_str()
      ->needs(collective);
  command->add_option("--codec", options->codec, "Codec on every hop")
      ->capture_default_str()
      ->needs(collective);
  command->add_option("--slice", options->slice, "Size of the pipelined pieces")
      ->capture_default_str()
      ->needs(collective);
  command
      ->add_flag("--every-flow", options->every_flow,
                 "Of a collective: simulate alike parts of the cluster one by one too")
      ->needs(collective);
  command
      ->add_option("--network", options->network,
                   "flow: max-min fair rates; packet: packets in queues, for small cases")
      ->check(CLI::IsMember({"flow", "packet"}))
      ->capture_default_str();
  command->footer(
      "Examples: rackrail simulate plan.json --trace step.json\n"
      "          rackrail simulate a100-8x8 --collective all-reduce --bytes 1GiB --schedule ring");
  command->callback([&session, options] {
    session.command = "simulate";
    run_simulate(session, *options);
  });
}

}  // namespace rackrail::cli
