// The jobs of a scenario (sim/job_places.hpp) with their plans and workloads.
#pragma once

#include <string>
#include <vector>

#include "cli/session.hpp"
#include "sim/jobs.hpp"
#include "sim/scenario.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// The plan at `plan_path`, where the scenario places it, and the jobs beside it. `workload` is the
/// first plan's, empty for the shipped one of its name. Where a plan pins routes and was made for
/// another cluster, that one is read and its links are looked for in `cluster` by their names.
/// Throws ConfigError or PlanError for what does not belong together.
std::vector<sim::Job> load_jobs(Session& session, const std::string& plan_path,
                                const std::string& workload, const sim::Scenario& scenario,
                                const topology::Topology& cluster);

}  // namespace rackrail::cli
