// Simulated steps as JSON, with the keys that `rackrail simulate --json` has.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cli/inputs.hpp"
#include "explore/outages.hpp"
#include "sim/jobs.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

nlohmann::json links_json(const topology::Topology& cluster,
                          const std::vector<sim::LinkUse>& links);
nlohmann::json queues_json(const topology::Topology& cluster,
                           const std::vector<sim::QueueUse>& queues);
nlohmann::json critical_path_json(const std::vector<sim::PathPiece>& path);
/// `loads`: whether a loader had to bring the data.
nlohmann::json step_json(const PlanInput& input, const sim::StepResult& result, bool loads);
nlohmann::json jobs_json(const topology::Topology& cluster, const sim::JobsResult& result);
nlohmann::json outages_json(const explore::OutageResult& result);

}  // namespace rackrail::cli
