// What the commands that emulate a cluster share: they plan, build and measure the network, and
// report the measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "plan/calibration.hpp"
#include "runtime/emulate/link_check.hpp"
#include "runtime/emulate/network.hpp"
#include "runtime/launch/signals.hpp"
#include "topology/topology.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace rackrail::cli {

/// Adds --scale.
CLI::Option* add_scale_option(CLI::App& command, double& scale);

/// Notes what is not as in the cluster. An error names `file`.
runtime::emulate::NetworkPlan plan_emulation(Session& session, const topology::Topology& cluster,
                                             const std::string& file, double scale);

/// The emulated network as it is on this machine: its ranks share `calibration`'s cores.
topology::Topology machine_as_network(const topology::Topology& original,
                                      const runtime::emulate::NetworkPlan& plan,
                                      const plan::Calibration& calibration);

/// Builds it, with progress on stderr.
runtime::emulate::EmulatedNetwork built_network(const Session& session,
                                                const runtime::emulate::NetworkPlan& plan);

struct CheckedLinks {
  std::vector<runtime::emulate::LinkMeasurement> links;
  double load = 0;       ///< load average (1 minute) before
  bool is_held = false;  ///< all of them are
};
/// Measures every link; fewer when interrupted. Says on stderr which rates are not held, and that
/// this makes the run invalid.
CheckedLinks check_emulation(Session& session, const runtime::emulate::EmulatedNetwork& network,
                             const runtime::InterruptGuard& interrupts);

std::string links_table(const runtime::emulate::NetworkPlan& plan, const CheckedLinks& checked);
nlohmann::json links_json(const runtime::emulate::NetworkPlan& plan, const CheckedLinks& checked);

}  // namespace rackrail::cli
