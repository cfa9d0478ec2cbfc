// One bare collective on a cluster, simulated: `rackrail simulate CLUSTER --collective ...`.
#pragma once

#include <memory>
#include <string>

#include "cli/decision_file.hpp"
#include "cli/record_files.hpp"
#include "cli/session.hpp"
#include "plan/transfer_graph.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// As they were said on the command line.
struct CollectiveOptions {
  std::string collective;         ///< all-reduce, reduce-scatter or all-gather
  std::string bytes = "1 GiB";    ///< on each rank: what is summed, or all that is gathered
  std::string schedule = "ring";  ///< a family, or "best"
  std::string codec = "fp32";
  std::string search = "quick";  ///< as parse_search() takes it
  std::string slice;             ///< empty: 1 MiB; of rings and "best", what is fastest
  std::shared_ptr<DecisionFile> decisions = std::make_shared<DecisionFile>();
  /// What runs, where it comes from a file; `schedule`, `search` and `collective` say nothing then.
  std::shared_ptr<const plan::TransferGraph> graph;
};

/// Prints time, rates, the exact lower bound and the busiest links, and, where there are files to
/// write, for which every flow is simulated, the critical path. Throws ConfigError.
void run_collective(Session& session, const topology::Topology& cluster,
                    const CollectiveOptions& options, const sim::SimulationOptions& simulation,
                    const RecordFiles& files);

}  // namespace rackrail::cli
