// The inputs that several subcommands take: a cluster, a workload, a plan.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/session.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/request/policies.hpp"
#include "sim/nccl/parameters.hpp"
#include "topology/topology.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rackrail::cli {

/// `<cluster>`, --overlay, --format, --device-class, --tier-bandwidth and --calibration.
struct ClusterOptions {
  std::string cluster;
  std::string overlay;
  std::string format;
  std::string device_class;                  ///< of ranks for which the file names none
  std::vector<std::string> tier_bandwidths;  ///< "TIER=RATE" each
  std::string calibration;                   ///< file of what was measured of ranks that are CPUs

  /// Adds all but the cluster; the cluster itself is a positional or an option of the caller.
  void add_to(CLI::App& command);
  /// For commands whose times depend on how fast ranks encode and add.
  void add_calibration_to(CLI::App& command);
  /// Reads it, notes the inputs and prints the reader's notes. Throws ConfigError.
  topology::Topology load(Session& session) const;
};

/// What `read` returns; an error of it that names no file gets this file and place.
template <typename Read>
auto named(const std::string& file, const std::string& where, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    ErrorContext context = error.context();
    if (!error.is_bad_input() || !context.file.empty() || context.found.empty()) {
      throw;
    }
    context.file = file;
    context.where = where.empty() ? context.where : where;
    throw ConfigError(context);
  }
}

/// An option for a share, into `value`: '2%' or 0.02, from 0 to `most`; its default is the value it
/// has.
CLI::Option* add_share_option(CLI::App& command, const std::string& name, double& value,
                              double most, const std::string& help);
/// Refuses other numbers for an option, as CLI::Range does, and nan, which passes there.
void require_number(CLI::Option& option, double least, double most);

/// --search, into `text`.
void add_search_option(CLI::App& command, std::string& text);
/// What that says. Throws ConfigError.
planner::SearchEffort parse_search(const std::string& text);

/// For work that takes long: throws ConfigError before it when a file cannot be written at `path`
/// after it. Makes missing folders, as writing does; the file itself is left alone.
void require_place(const std::string& path);

/// Throws ConfigError unless --transport names one that joins processes; whether it works here is
/// found out by those who open it.
void require_transport(const std::string& name);

/// What --workload says, or else the name of the plan's. Throws ConfigError that asks for
/// --workload where that is neither a file nor shipped.
std::string workload_of_plan(const plan::Plan& plan, const std::string& plan_path,
                             const std::string& asked);

/// --sequence and --dtype for this command and those below it that take a workload.
void add_workload_options(CLI::App& command, Session& session);

/// A file or the name of a shipped workload.
plan::Workload load_workload(Session& session, const std::string& name_or_path);

/// A file or the name of a shipped training. Throws ConfigError.
std::filesystem::path training_file(const std::string& name_or_path);

/// Constants of the NCCL model: a file, or the name of one in configs/nccl; empty: the usual ones.
sim::nccl::Parameters load_nccl_parameters(Session& session, const std::string& name_or_path);

/// Whether this is a file with a schedule of another program: an MSCCL program.
bool is_foreign_schedule(const std::string& path);
/// Reads it, notes the input. Throws ConfigError with file and place.
plan::TransferGraph load_foreign_schedule(Session& session, const std::string& path);

/// Whether this is the name of a shipped cluster or a file that a reader of clusters takes for one.
bool is_cluster(const std::string& name_or_path);

/// A plan with the cluster and the workload that it was made for.
struct PlanInput {
  plan::Plan plan;
  topology::Topology cluster;
  plan::Workload workload;
};

/// Cluster and workload are those named in the plan where none are given. Throws PlanError when
/// either is another than the plan was made for, and when the plan does not verify with them.
PlanInput load_plan_input(Session& session, const std::string& plan_path,
                          const ClusterOptions& cluster, const std::string& workload);
/// The same for who lists what is wrong with the plan.
PlanInput load_unverified_input(Session& session, const std::string& plan_path,
                                const ClusterOptions& cluster, const std::string& workload);

}  // namespace rackrail::cli
