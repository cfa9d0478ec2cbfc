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
/// processor to charge, GPUs without a class, and bursts of links
/// (Link::burst) at the packet level, which has none.
std::vector<std::string> simulation_notes(const topology::Topology& cluster,
                                          sim::NetworkLevel level);

/// Where ranks have no device class: that the workload's compute times are taken as profiled. None
/// where the profile does not say on what.
std::optional<std::string> unscaled_compute_note(const topology::Topology& cluster,
                                                 const plan::Workload& workload);

/// What a plan is missing for that, in one sentence: also that GPUs without a class encode and add
/// as a CPU's core does, so that nobody takes the gap for the plan's.
std::optional<std::string> plan_without_class_note(const topology::Topology& cluster,
                                                   const plan::Workload& workload);

/// One sentence for each class that ranks have and that is none of plan/device_class.hpp, with
/// those that are, the likeliest first: for want of their rates codecs and additions count as on a
/// core.
std::vector<std::string> unknown_class_warnings(const topology::Topology& cluster);

/// Prints those as warnings on stderr; returns them for who answers with --json.
std::vector<std::string> warn_of_unknown_classes(const Session& session,
                                                 const topology::Topology& cluster);

/// Prints those warnings and the notes on stderr; returns all of them likewise.
std::vector<std::string> say_notes(const Session& session, const topology::Topology& cluster,
                                   std::vector<std::string> notes);

/// What is left out or assumed of a step of a plan.
std::vector<std::string> notes_on_plan(const plan::Plan& plan, const plan::Workload& workload,
                                       const topology::Topology& cluster, sim::NetworkLevel level);

}  // namespace rackrail::cli
