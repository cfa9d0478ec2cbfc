// Files with what happened in a simulation one by one: --trace, --flows and --links.
#pragma once

#include <string>

#include "cli/session.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// Names of the files to write; empty: none.
struct RecordFiles {
  std::string trace;  ///< Perfetto
  std::string flows;  ///< CSV: messages
  std::string links;  ///< CSV: utilisation over time

  bool any() const { return !trace.empty() || !flows.empty() || !links.empty(); }
  /// Tells the session; throws ConfigError as Session::add_output().
  void add_outputs(Session& session) const;
  /// Has the simulation record what they need.
  void ask(sim::SimulationOptions& options) const;
  /// `disturbances` are those of the simulation, `name` is what the trace calls it.
  void write(const sim::Records& records, const topology::Topology& cluster,
             const sim::Disturbances& disturbances, const std::string& name) const;
  /// A line for each.
  void print_written() const;
};

}  // namespace rackrail::cli
