// What a simulation leaves out or assumes because the cluster does not say it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// One sentence each: shares of cores that messages cost (Link::cpu_share) where no machine has a
/// processor to charge, ranks without a class, and bursts of links (Link::burst) at the packet
/// level, which has none.
std::vector<std::string> simulation_notes(const topology::Topology& cluster,
                                          sim::NetworkLevel level,
                                          const plan::Workload* workload = nullptr);

/// Where ranks have no device class: that the workload's compute times are taken as profiled. None
/// where the profile does not say on what.
std::optional<std::string> unscaled_compute_note(const topology::Topology& cluster,
                                                 const plan::Workload& workload);

/// Where GPUs have no device class: at which rates they encode and add.
std::optional<std::string> gpus_without_class_note(const topology::Topology& cluster);

/// Both, in one sentence.
std::optional<std::string> without_class_note(const topology::Topology& cluster,
                                              const plan::Workload& workload);

/// Where ranks have classes that nobody describes (plan/device_class.hpp): which, and as what they
/// are taken, in one sentence.
std::optional<std::string> unknown_class_note(const topology::Topology& cluster);

/// Prints that note and these on stderr; returns all of them for who answers with --json.
std::vector<std::string> say_notes(const Session& session, const topology::Topology& cluster,
                                   std::vector<std::string> notes);

/// What is left out or assumed of a step of a plan.
std::vector<std::string> notes_on_plan(const plan::Plan& plan, const plan::Workload& workload,
                                       const topology::Topology& cluster, sim::NetworkLevel level);

}  // namespace rackrail::cli
