#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/inputs.hpp"
#include "cli/session.hpp"
#include "cli/table.hpp"
#include "export/rank_text.hpp"
#include "plan/device_class.hpp"
#include "planner/placement/hosts.hpp"
#include "planner/placement/placement.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

constexpr int kMostHosts = 1'000'000;
constexpr std::size_t kMostNamed = 8;  // hosts in a sentence

struct PlaceOptions {
  ClusterOptions cluster;
  std::size_t hosts = 0;
  std::size_t gpus_per_host = 0;
  std::string format = "openmpi";
  std::string output;
  std::string cluster_output;
};

std::vector<exporting::HostSlots> slots_of(const planner::Placement& placement) {
  std::vector<exporting::HostSlots> hosts;
  for (const planner::PlacedHost& host : placement.hosts) {
    hosts.push_back({host.name, host.ranks.size()});
  }
  return hosts;
}

std::string hostfile(const planner::Placement& placement, const std::string& format) {
  const std::vector<exporting::HostSlots> hosts = slots_of(placement);
  return format == "openmpi"    ? exporting::openmpi_hostfile(hosts)
         : format == "slurm"    ? exporting::slurm_hostfile(hosts)
         : format == "torchrun" ? exporting::torchrun_script(hosts)
                                : exporting::node_list(hosts);
}

nlohmann::json placement_json(const planner::Placement& placement, const std::string& file) {
  nlohmann::json hosts = nlohmann::json::array();
  std::size_t ranks = 0;
  std::size_t unused = 0;
  for (const planner::PlacedHost& host : placement.hosts) {
    hosts.push_back({{"name", host.name},
                     {"rack", host.rack},
                     {"ranks", host.ranks},
                     {"unused_ranks", host.unused_ranks}});
    ranks += host.ranks.size();
    unused += host.unused_ranks;
  }
  nlohmann::json ineligible = nlohmann::json::array();
  for (const planner::IneligibleHost& host : placement.ineligible) {
    ineligible.push_back({{"name", host.name}, {"ranks", host.ranks}});
  }
  return {{"hosts", hosts},
          {"ranks", ranks},
          {"unused_ranks", unused},
          {"device_classes", placement.device_classes},
          {"racks", placement.racks},
          {"candidate_hosts", placement.candidates},
          {"least_ranks", placement.least_ranks},
          {"ineligible_hosts", ineligible},
          {"allgather_algbw_Bps", placement.allgather.bytes_per_second()},
          {"reducescatter_algbw_Bps", placement.reducescatter.bytes_per_second()},
          {"allreduce_algbw_Bps", placement.allreduce.bytes_per_second()},
          {"exact", placement.is_exact},
          {"compared", placement.compared},
          {"hostfile", file}};
}

/// "4 GPUs of them stay unused: ...", where nobody asked for so few.
std::optional<std::string> unused_text(const planner::Placement& placement) {
  std::vector<std::string> parts;
  std::size_t unused = 0;
  for (const planner::PlacedHost& host : placement.hosts) {
    if (host.unused_ranks > 0) {
      parts.push_back(fmt::format("{} of {}", host.unused_ranks, host.name));
      unused += host.unused_ranks;
    }
  }
  if (unused == 0) {
    return std::nullopt;
  }
  return fmt::format("{} unused ({}), as each host gets {} ranks, the most that all of them have",
                     unused == 1 ? "1 GPU stays" : fmt::format("{} GPUs stay", unused),
                     fmt::join(parts, ", "), placement.hosts.front().ranks.size());
}

/// "2 hosts are not eligible, as they have fewer than 4 ranks: host2 (2), host3 (2)".
std::optional<std::string> ineligible_text(const planner::Placement& placement) {
  if (placement.ineligible.empty()) {
    return std::nullopt;
  }
  std::vector<std::string> names;
  for (const planner::IneligibleHost& host : placement.ineligible) {
    if (names.size() < kMostNamed) {
      names.push_back(fmt::format("{} ({})", host.name, host.ranks));
    }
  }
  const std::size_t count = placement.ineligible.size();
  return fmt::format("{} left out, having fewer than the {} ranks that each host needs: {}{}",
                     count == 1 ? "1 host is" : fmt::format("{} hosts are", count),
                     placement.least_ranks, fmt::join(names, ", "),
                     count > kMostNamed ? fmt::format(" and {} more", count - kMostNamed) : "");
}

/// Which devices the hosts have, where they differ.
std::optional<std::string> devices_text(const planner::Placement& placement) {
  if (placement.device_classes.size() < 2) {
    return std::nullopt;
  }
  std::vector<std::string> names = placement.device_classes;
  bool are_known = true;
  for (std::string& name : names) {
    are_known = are_known && plan::likeliest_device_class(name) != nullptr;
    name = name.empty() ? "unknown" : name;
  }
  return fmt::format(
      "hosts have different devices ({}): the faster network is chosen first, {}",
      fmt::join(names, ", "),
      are_known ? "then the faster devices by their data sheets; 'rackrail plan' predicts the step"
                : "and devices are not compared, as some are unknown");
}

void run_place(Session& session, const PlaceOptions& options) {
  const topology::Topology cluster = options.cluster.load(session);
  session.add_output(options.output);
  session.add_output(options.cluster_output);
  planner::PlacementOptions wanted;
  wanted.hosts = options.hosts;
  if (options.gpus_per_host > 0) {
    wanted.gpus_per_host = options.gpus_per_host;
  }
  ProgressBar bar("comparing hosts", session.progress_elsewhere());
  const planner::Placement placement = named(options.cluster.cluster, "", [&] {
    planner::Placement found = planner::place(cluster, wanted);
    exporting::require_plain_names(slots_of(found));
    return found;
  });
  bar.clear();
  const std::string file = hostfile(placement, options.format);
  if (!options.output.empty()) {
    write_file_atomically(options.output, file);
  }
  if (!options.cluster_output.empty()) {
    topology::Topology part = placement.cluster;
    part.set_name(fmt::format("{} ({} of {} hosts)", cluster.name(), placement.hosts.size(),
                              planner::hosts_of(cluster).size()));
    write_file_atomically(options.cluster_output, topology::to_flat_yaml(part));
  }
  if (session.json) {
    session.print_json(placement_json(placement, file));
    return;
  }
  session.note(fmt::format(
      "chose {} of {} hosts{}: at most {} all-gather and {} all-reduce, {}", placement.hosts.size(),
      placement.candidates, placement.racks > 0 ? " in " + counted(placement.racks, "rack") : "",
      to_string(placement.allgather), to_string(placement.allreduce),
      placement.is_exact ? fmt::format("the best possible choice ({} compared)", placement.compared)
                         : fmt::format("the best of {} choices tried", placement.compared)));
  if (const auto ineligible = ineligible_text(placement)) {
    session.note(*ineligible);
  }
  if (const auto devices = devices_text(placement)) {
    session.note(*devices);
  }
  if (const auto unused = unused_text(placement); unused && options.gpus_per_host == 0) {
    session.note(*unused);
  }
  for (const planner::PlacedHost& host : placement.hosts) {
    if (host.ranks.size() > 1) {
      session.note(fmt::format("{}: {}", host.name, fmt::join(host.ranks, " ")));
    }
  }
  if (options.output.empty()) {
    fmt::print("{}", file);
  } else {
    fmt::print("wrote {}\n", options.output);
  }
  if (!options.cluster_output.empty()) {
    session.note("wrote " + options.cluster_output);
  }
}

}  // namespace

void add_place_command(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("place", "Choose hosts and rank order for a job, as a hostfile");
  add_common_options(*command, session);
  const auto options = std::make_shared<PlaceOptions>();
  command
      ->add_option("cluster,--cluster", options->cluster.cluster,
                   "Cluster file, or the name of a shipped cluster such as two-racks-40g")
      ->required();
  options->cluster.add_to(*command);
  command->add_option("-n,--hosts", options->hosts, "Number of hosts that the job needs")
      ->required()
      ->check(CLI::Range(1, kMostHosts));
  command
      ->add_option("--gpus-per-host", options->gpus_per_host,
                   "Ranks on each host, e.g. 4. Default: as many as all chosen hosts have")
      ->check(CLI::Range(1, kMostHosts));
  command
      ->add_option("--hostfile-format", options->format,
                   "openmpi: for mpirun --hostfile. slurm: SLURM_HOSTFILE for srun "
                   "--distribution=arbitrary. nodelist: for sbatch --nodelist. torchrun: a script "
                   "that every host runs")
      ->check(CLI::IsMember({"openmpi", "slurm", "nodelist", "torchrun"}))
      ->capture_default_str();
  command->add_option("-o,--output", options->output,
                      "Hostfile to write. Default: standard output");
  command->add_option("--cluster-output", options->cluster_output,
                      "Also write the chosen hosts as a cluster file to plan for (YAML)");
  command->footer("Example: rackrail place a100-8x8 --hosts 4 -o hostfile");
  command->callback([&session, options] {
    session.command = "place";
    run_place(session, *options);
  });
}

}  // namespace rackrail::cli
