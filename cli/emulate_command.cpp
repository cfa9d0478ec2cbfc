#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "cli/commands.hpp"
#include "cli/emulation.hpp"
#include "cli/inputs.hpp"
#include "cli/session.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/temporary_folder.hpp"
#include "plan/calibration.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/emulate/leftovers.hpp"
#include "runtime/emulate/rank_commands.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

namespace emulate = runtime::emulate;

struct EmulateOptions {
  ClusterOptions cluster;
  double scale = 1;
  std::string calibration;
  bool clean = false;
  std::vector<std::string> command;
};

void clean(Session& session) {
  const emulate::Leftovers removed = emulate::remove_leftovers();
  if (session.json) {
    session.print_json({{"names", removed.names}, {"processes", removed.processes}});
    return;
  }
  fmt::print("removed {} names and {} processes of emulations whose owner is gone\n", removed.names,
             removed.processes);
}

nlohmann::json ranks_json(const emulate::RankCommandResult& result,
                          const std::vector<std::vector<std::string>>& lines) {
  nlohmann::json ranks = nlohmann::json::array();
  for (std::size_t r = 0; r < result.ends.size(); ++r) {
    const auto& end = result.ends[r];
    ranks.push_back({{"rank", r},
                     {"exit_status", end ? nlohmann::json(end->status) : nlohmann::json()},
                     {"cpu_time_s", end ? end->cpu_time.seconds() : 0},
                     {"output", lines[r]}});
  }
  return ranks;
}

std::string token_of_environment() {
  const std::string token = runtime::read_job_token("");
  return token.empty() ? runtime::make_job_token() : token;
}

/// What the ranks are to plan for, as files and the variables that name them.
class DescribedNetwork {
 public:
  DescribedNetwork(const topology::Topology& original, const emulate::NetworkPlan& plan,
                   const std::string& calibration) {
    const std::string cluster = folder_.file("emulated.yaml");
    write_file_atomically(cluster, topology::to_flat_yaml(machine_as_network(
                                       original, plan, plan::read_calibration(calibration))));
    variables_ = {{"RACKRAIL_CLUSTER", cluster},
                  {"RACKRAIL_CALIBRATION", std::filesystem::absolute(calibration).string()}};
  }

  const std::map<std::string, std::string>& variables() const { return variables_; }

 private:
  TemporaryFolder folder_;
  std::map<std::string, std::string> variables_;
};

void run_emulate(Session& session, EmulateOptions options) {
  if (!options.command.empty()) {
    options.command.front() = emulate::program_path(options.command.front());
  }
  const topology::Topology cluster = options.cluster.load(session);
  const emulate::NetworkPlan plan =
      plan_emulation(session, cluster, options.cluster.cluster, options.scale);
  std::optional<DescribedNetwork> described;
  if (!options.calibration.empty()) {
    if (options.command.empty()) {
      throw ConfigError(ErrorContext{"<command line>", "--calibration", "no command",
                                     "after --: what is to plan for the network"});
    }
    session.add_input(options.calibration);
    described.emplace(cluster, plan, options.calibration);
  }
  const runtime::InterruptGuard interrupts;
  const emulate::EmulatedNetwork network = built_network(session, plan);
  const CheckedLinks checked = check_emulation(session, network, interrupts);
  nlohmann::json json = links_json(network.plan(), checked);
  if (!session.json) {
    fmt::print("{}", links_table(network.plan(), checked));
    std::fflush(stdout);
  }
  session.status = checked.is_held ? kDone : kNotMet;
  if (!options.command.empty() && interrupts.received() == 0) {
    std::vector<std::vector<std::string>> lines(network.plan().host_of_rank.size());
    emulate::RankCommandOptions run;
    run.words = options.command;
    run.token = token_of_environment();
    if (described) {
      run.variables = described->variables();
    }
    run.on_line = [&](Rank rank, std::string_view line) {
      if (session.json) {
        lines[rank.index()].emplace_back(line);
      } else if (interrupts.received() != SIGPIPE) {
        fmt::print("[rank {}] {}\n", rank.value(), line);
        std::fflush(stdout);
      }
    };
    const emulate::RankCommandResult result = emulate::run_on_ranks(network, run, interrupts);
    json["ranks"] = ranks_json(result, lines);
    if (result.failed) {
      session.note(fmt::format("rank {} {}; the others were ended", result.failed->child,
                               describe(*result.failed)));
      session.status = kNotMet;
    }
  }
  if (interrupts.received() != 0) {
    session.note(fmt::format("interrupted by signal {}", interrupts.received()));
    session.status = kSignalBase + interrupts.received();
  }
  if (session.json) {
    session.print_json(json);
  }
}

}  // namespace

void add_emulate_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "emulate", "Build a cluster's network on this machine and run a command on each rank");
  add_common_options(*command, session);
  const auto options = std::make_shared<EmulateOptions>();
  CLI::Option* cluster =
      command->add_option("cluster,--cluster", options->cluster.cluster,
                          "Cluster to emulate: a file, or the name of a shipped cluster");
  CLI::Option* words =
      command->add_option("command", options->command,
                          "Command of each rank, after --. Without one the links are measured");
  options->cluster.add_to(*command);
  CLI::Option* scale = add_scale_option(*command, options->scale);
  CLI::Option* calibration =
      command->add_option("--calibration", options->calibration,
                          "File of 'rackrail calibrate' for this machine. Ranks then find the "
                          "emulated network as a cluster file in RACKRAIL_CLUSTER");
  CLI::Option* cleaning = command->add_flag(
      "--clean", options->clean, "Remove what killed emulations left behind, and nothing else");
  cleaning->excludes(cluster, words, scale, calibration);
  command->footer(
      "Examples: rackrail emulate two-racks-40g --scale 0.0125\n          rackrail emulate "
      "two-racks-40g --scale 0.0125 -- rackrail train plan.json\nEach host and switch is a network "
      "namespace. Virtual cables join them at the given rates.\nNeeds root and iproute2. Every "
      "link is measured first. Exit status 1: a link does not hold its\nrate within 3 %, or a rank "
      "failed. Each rank has the variables of a job that rackrail started.\n'ip netns exec "
      "rackrail-<pid>-<host> COMMAND' runs a command inside a host meanwhile.");
  command->callback([&session, options] {
    session.command = "emulate";
    const std::vector<std::string>& foreign = session.foreign_words;
    options->command.insert(options->command.end(), foreign.begin(), foreign.end());
    if (options->clean) {
      if (!foreign.empty()) {
        throw ConfigError(
            ErrorContext{"<command line>", "--clean", "a command after --", "one or the other"});
      }
      clean(session);
      return;
    }
    if (options->cluster.cluster.empty()) {
      throw ConfigError(ErrorContext{"<command line>", "emulate", "no cluster",
                                     "a file, or the name of a shipped one (or --clean)"});
    }
    run_emulate(session, *options);
  });
}

}  // namespace rackrail::cli
