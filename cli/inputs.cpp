#include "cli/inputs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <system_error>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/shared_numbers.hpp"
#include "plan/calibration.hpp"
#include "plan/cost_model.hpp"
#include "plan/device_class.hpp"
#include "plan/format.hpp"
#include "plan/msccl/program.hpp"
#include "plan/msccl/to_graph.hpp"
#include "runtime/transport.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

const plan::DeviceClass& device_class_named(const std::string& name) {
  if (const plan::DeviceClass* known = plan::find_device_class(name)) {
    return *known;
  }
  std::vector<std::string_view> known;
  for (const plan::DeviceClass& one : plan::device_classes()) {
    known.push_back(one.name);
  }
  throw ConfigError(ErrorContext{"<command line>", "--device-class", fmt::format("'{}'", name),
                                 fmt::format("one of {}", fmt::join(known, ", "))});
}

/// False: every rank has a class already, and another.
bool set_device_class(topology::Topology& cluster, const std::string& name) {
  const std::string_view known = device_class_named(name).name;
  bool is_used = false;
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    const NodeId id = cluster.node_of(Rank(r));
    topology::Node node = cluster.node(id);
    is_used = is_used || node.device_class.empty() || node.device_class == known;
    if (node.device_class.empty()) {
      node.device_class = known;
      cluster.set_node_properties(id, node);
    }
  }
  return is_used;
}

std::map<std::string, Bandwidth, std::less<>> parse_tier_bandwidths(
    const std::vector<std::string>& texts) {
  std::map<std::string, Bandwidth, std::less<>> rates;
  for (const std::string& text : texts) {
    const std::size_t at = text.rfind('=');
    if (at == std::string::npos || at == 0) {
      throw ConfigError(ErrorContext{"<command line>", "--tier-bandwidth",
                                     fmt::format("'{}'", text),
                                     "TIER=RATE, such as 'spine=400 Gbit/s'"});
    }
    const Bandwidth rate = named("<command line>", "--tier-bandwidth",
                                 [&] { return parse_bandwidth(text.substr(at + 1)); });
    if (rate == Bandwidth(0)) {
      throw ConfigError(ErrorContext{"<command line>", "--tier-bandwidth",
                                     fmt::format("'{}'", text), "a bandwidth above 0"});
    }
    if (!rates.emplace(text.substr(0, at), rate).second) {
      throw ConfigError(ErrorContext{"<command line>", "--tier-bandwidth",
                                     fmt::format("tier '{}' twice", text.substr(0, at)),
                                     "each tier once"});
    }
  }
  return rates;
}

void set_calibration(topology::Topology& cluster, const std::string& file) {
  cluster.set_measured_processor(plan::measured_processor(plan::read_calibration(file)));
  for (std::size_t r = 0; r < cluster.rank_count(); ++r) {
    if (plan::is_measured(cluster, Rank(r))) {
      return;
    }
  }
  throw ConfigError(ErrorContext{"<command line>", "--calibration", file,
                                 "a cluster with ranks of device class cpu, which it is of"});
}

}  // namespace

void ClusterOptions::add_to(CLI::App& command) {
  command.add_option(
      "--overlay", overlay,
      "YAML file that adds what the cluster file lacks: number of hosts, network, GPU");
  command.add_option("--format", format,
                     "Format of the cluster file; found from its content by default");
  command.add_option("--device-class", device_class,
                     "Device class where the cluster file names none, e.g. A100; in files of one "
                     "machine (NCCL, nvidia-smi, rocm-smi) also instead of the one named");
  command
      .add_option("--tier-bandwidth", tier_bandwidths,
                  "Bandwidth of every link of a tier, e.g. 'spine=400 Gbit/s'. May be repeated; "
                  "'rackrail topology show' lists the tiers")
      ->type_name("TIER=RATE")
      ->allow_extra_args(false);
}

void ClusterOptions::add_calibration_to(CLI::App& command) {
  command.add_option("--calibration", calibration,
                     "File of 'rackrail calibrate': how fast CPU ranks encode and add here");
}

namespace {

template <typename Read>
bool succeeds(const Read& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// As topology's; names the likeliest mistake.
topology::ReadResult read_named_cluster(const std::string& name_or_path,
                                        const topology::ReadOptions& options) {
  try {
    return topology::read_cluster(name_or_path, options);
  } catch (const ConfigError&) {
    if (succeeds([&] { plan::read_workload(name_or_path, topology::configs_folder()); })) {
      throw ConfigError(ErrorContext{name_or_path, "", "a workload",
                                     "a cluster, which stands before the workload"});
    }
    throw;
  }
}

}  // namespace

topology::Topology ClusterOptions::load(Session& session) const {
  topology::ReadOptions options;
  if (!overlay.empty()) {
    options.overlay = overlay;
  }
  if (!format.empty()) {
    options.format = format;
  }
  if (!device_class.empty()) {
    options.device_class = device_class_named(device_class).name;
  }
  options.tier_bandwidths = parse_tier_bandwidths(tier_bandwidths);
  ProgressBar bar("reading the cluster", session.progress_elsewhere());
  topology::ReadResult result = read_named_cluster(cluster, options);
  bar.clear();
  session.add_inputs(result.inputs);
  for (const std::string& note : result.notes) {
    session.note("note: " + note);
  }
  plan::name_device_classes(result.topology);
  if (!device_class.empty() && !set_device_class(result.topology, device_class)) {
    session.note(fmt::format(
        "note: --device-class {} changes nothing: the cluster file names another class for every "
        "rank",
        device_class));
  }
  if (!calibration.empty()) {
    set_calibration(result.topology, calibration);
    session.add_input(calibration);
  }
  return std::move(result.topology);
}

CLI::Option* add_share_option(CLI::App& command, const std::string& name, double& value,
                              double most, const std::string& help) {
  const auto read = [&value, name, most](const std::string& text) {
    value = named("<command line>", name, [&] { return parse_share_up_to(text, most); });
  };
  return command.add_option_function<std::string>(name, read, help)
      ->type_name("SHARE")
      ->default_str(fmt::format("{:g}%", kPercent * value));
}

void require_number(CLI::Option& option, double least, double most) {
  option.check([least, most](const std::string& text) {
    double value = 0;
    const bool is_right = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return is_right ? std::string()
                    : fmt::format("Value {} not in range {:g} to {:g}", text, least, most);
  });
}

void add_search_option(CLI::App& command, std::string& text) {
  command
      .add_option(
          "--search", text,
          "quick: end where little is left to gain for the wait, mostly after seconds; thorough: "
          "try all there is to try, which may take minutes. Both give the same answer on "
          "every machine")
      ->capture_default_str();
}

planner::SearchEffort parse_search(const std::string& text) {
  return named("<command line>", "--search", [&] { return planner::parse_search_effort(text); });
}

void require_place(const std::string& path) {
  const std::filesystem::path file = path;
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code status;
  std::filesystem::create_directories(folder, status);
  if (!status && std::filesystem::is_directory(file)) {
    status = std::make_error_code(std::errc::is_a_directory);
  }
  if (!status && ::access(folder.c_str(), W_OK | X_OK) != 0) {
    status = {errno, std::generic_category()};
  }
  if (status) {
    throw ConfigError(ErrorContext{path, "", status.message(), "a place that can be written"});
  }
}

void require_transport(const std::string& name) {
  std::string known;
  for (const runtime::TransportKind& kind : runtime::transport_kinds()) {
    if (kind.name == "in-process") {
      continue;
    }
    if (kind.name == name) {
      return;
    }
    known += (known.empty() ? "" : ", ") + kind.name;
  }
  throw ConfigError(
      ErrorContext{"<command line>", "--transport", fmt::format("'{}'", name), known});
}

std::filesystem::path training_file(const std::string& name_or_path) {
  if (std::filesystem::exists(name_or_path)) {
    return name_or_path;
  }
  const std::filesystem::path folder = topology::configs_folder() / "training";
  const std::filesystem::path shipped = folder / (name_or_path + ".yaml");
  if (std::filesystem::exists(shipped)) {
    return shipped;
  }
  throw ConfigError(ErrorContext{"<command line>", "--training", fmt::format("'{}'", name_or_path),
                                 "a training file, or the name of one in " + folder.string()});
}

namespace {

plan::Workload read_named_workload(const std::string& name_or_path,
                                   const std::filesystem::path& configs,
                                   const plan::WorkloadOptions& options) {
  try {
    return plan::read_workload(name_or_path, configs, options);
  } catch (const ConfigError&) {
    if (succeeds([&] { topology::read_cluster(name_or_path); })) {
      throw ConfigError(ErrorContext{name_or_path, "", "a cluster",
                                     "a workload, which stands after the cluster"});
    }
    throw;
  }
}

}  // namespace

void add_workload_options(CLI::App& command, Session& session) {
  if (command.get_option_no_throw("--workload") != nullptr) {
    command.add_option("--sequence", session.workload_options.sequence,
                       "Tokens of a sample, for a transformer's config.json. Default: 4096, or all "
                       "positions of the model if it has fewer");
    command.add_option(
        "--dtype", session.workload_options.dtype,
        "Type of the gradients, for a transformer's config.json: fp32, bf16 or fp16. "
        "Default: fp32");
  }
  for (CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; })) {
    add_workload_options(*below, session);
  }
}

plan::Workload load_workload(Session& session, const std::string& name_or_path) {
  const std::filesystem::path configs = topology::configs_folder();
  ProgressBar bar("reading the model", session.progress_elsewhere());
  plan::Workload workload = read_named_workload(name_or_path, configs, session.workload_options);
  bar.clear();
  std::filesystem::path file = name_or_path;
  if (!std::filesystem::exists(file)) {
    file = configs / "models" / (name_or_path + ".yaml");
  }
  session.add_input(file);
  for (const std::string& note : workload.notes) {
    session.note("note: " + note);
  }
  return workload;
}

sim::nccl::Parameters load_nccl_parameters(Session& session, const std::string& name_or_path) {
  if (name_or_path.empty()) {
    return sim::nccl::usual_parameters();
  }
  std::filesystem::path path = name_or_path;
  if (!std::filesystem::exists(path)) {
    const auto shipped = topology::configs_folder() / "nccl" / (name_or_path + ".yaml");
    if (std::filesystem::exists(shipped)) {
      path = shipped;
    }
  }
  sim::nccl::Parameters parameters = sim::nccl::read_parameters(path);
  session.add_input(path);
  return parameters;
}

std::string workload_of_plan(const plan::Plan& plan, const std::string& plan_path,
                             const std::string& asked) {
  if (!asked.empty()) {
    return asked;
  }
  const std::vector<std::string> shipped = plan::shipped_workloads(topology::configs_folder());
  if (!std::filesystem::exists(plan.workload_name) &&
      std::ranges::find(shipped, plan.workload_name) == shipped.end()) {
    throw ConfigError(
        ErrorContext{plan_path, "workload_name",
                     fmt::format("'{}', which is not a shipped workload", plan.workload_name),
                     "--workload with the file that the plan was made for"});
  }
  return plan.workload_name;
}

bool is_foreign_schedule(const std::string& path) {
  std::error_code status;
  return std::filesystem::is_regular_file(path, status) &&
         plan::msccl::looks_like_program(read_file(path));
}

plan::TransferGraph load_foreign_schedule(Session& session, const std::string& path) {
  session.add_input(path);
  return plan::msccl::to_graph(plan::msccl::parse_program(read_file(path), path), path);
}

bool is_cluster(const std::string& name_or_path) {
  std::error_code status;
  if (!std::filesystem::is_regular_file(name_or_path, status)) {
    const std::vector<std::string> shipped = topology::shipped_clusters();
    return std::find(shipped.begin(), shipped.end(), name_or_path) != shipped.end();
  }
  const std::string content = read_file(name_or_path);
  const auto readers = topology::readers();
  return std::any_of(readers.begin(), readers.end(),
                     [&](const auto& reader) { return reader->accepts(name_or_path, content); });
}

PlanInput load_plan_input(Session& session, const std::string& plan_path,
                          const ClusterOptions& cluster, const std::string& workload) {
  PlanInput input = load_unverified_input(session, plan_path, cluster, workload);
  plan::require_right(input.plan, &input.cluster, &input.workload, plan_path);
  return input;
}

PlanInput load_unverified_input(Session& session, const std::string& plan_path,
                                const ClusterOptions& cluster, const std::string& workload) {
  PlanInput input;
  input.plan = plan::load_unverified(plan_path);
  session.add_input(plan_path);
  ClusterOptions source = cluster;
  if (source.cluster.empty()) {
    source.cluster = input.plan.cluster_name;
  }
  try {
    input.cluster = source.load(session);
  } catch (const ConfigError& error) {
    const ErrorContext& context = error.context();
    if (!cluster.cluster.empty() || context.file == "<command line>" ||
        (!cluster.calibration.empty() && context.file == cluster.calibration)) {
      throw;
    }
    throw ConfigError(
        ErrorContext{plan_path, "cluster_name",
                     fmt::format("'{}', which is not a shipped cluster", input.plan.cluster_name),
                     "--cluster with the file that the plan was made for"});
  }
  if (input.cluster.digest() != input.plan.cluster_digest) {
    throw PlanError(
        ErrorContext{plan_path, "cluster_digest",
                     fmt::format("a plan for cluster '{}' ({:.12})", input.plan.cluster_name,
                                 input.plan.cluster_digest),
                     fmt::format("one for cluster '{}' ({:.12}): the same file, "
                                 "--device-class, --tier-bandwidth and --overlay as when it was "
                                 "planned",
                                 input.cluster.name(), input.cluster.digest())});
  }
  const std::string workload_name = workload_of_plan(input.plan, plan_path, workload);
  input.workload = load_workload(session, workload_name);
  if (input.workload.digest() != input.plan.workload_digest) {
    throw PlanError(ErrorContext{
        plan_path, "workload_digest",
        fmt::format("a plan for model '{}'", input.plan.workload_name),
        fmt::format("one for model '{}' as in '{}'", input.workload.name, workload_name)});
  }
  return input;
}

}  // namespace rackrail::cli
