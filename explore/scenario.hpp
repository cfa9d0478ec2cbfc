// A scenario: a cluster, a workload, options of the planner, and fields of all three that vary.
// docs/reference/sweep-file.md documents the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "explore/axis.hpp"
#include "plan/workload.hpp"
#include "topology/topology.hpp"

namespace rackrail::explore {

/// What a search tells better from worse by.
struct Objective {
  std::string_view name;  ///< the key of a result: "step_time_s", "throughput", …
  bool more_is_better = false;
  std::string_view unit;  ///< of the figure as tables have it; empty: a share
};
/// Throws ConfigError that lists the known names.
const Objective& objective_named(std::string_view name);

/// A YAML document with the name that messages call it by.
struct Source {
  std::filesystem::path file;
  std::string text;
};
/// A cluster or workload as YAML whose fields can be replaced: the file itself where it is such
/// YAML, else what it describes in rackrail's own (flat) form. Throws ConfigError.
Source cluster_source(const std::string& name_or_path,
                      const std::optional<std::filesystem::path>& overlay = std::nullopt);
Source workload_source(const std::string& name_or_path, const plan::WorkloadOptions& options = {});
/// The cluster of such a document, whatever the format of the file that it was made from.
topology::Topology read_cluster_source(const Source& cluster);

struct Scenario {
  std::string name;
  Source cluster;  ///< the first, where they vary as wholes
  Source workload;
  /// Of the axes "cluster" and "workload", by axis and value: the documents that take turns.
  std::map<std::pair<std::string, std::string>, Source> documents;
  std::optional<Source> faults;             ///< see sim/scenario.hpp
  std::map<std::string, std::string> plan;  ///< options of the planner by name
  std::vector<Axis> axes;                   ///< in the order of the file
  std::optional<std::int64_t> trials;       ///< of a random search; all combinations if none
  int repetitions = 1;                      ///< executions of each cell
  const Objective* objective = nullptr;
  std::uint64_t seed = 0;
  std::vector<std::filesystem::path> inputs;  ///< every file that was read
};

/// Names of clusters and workloads are looked for beside the scenario first. Throws ConfigError
/// with file, line and field; for a path that leads nowhere it names the nearest that exist.
Scenario read_scenario(const std::filesystem::path& path);

}  // namespace rackrail::explore
