// Simulated steps and collectives in words and tables.
#pragma once

#include <string>
#include <vector>

#include "cli/inputs.hpp"
#include "explore/outages.hpp"
#include "sim/jobs.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

/// Samples per second of all ranks together, over all steps.
double throughput(const plan::Plan& plan, const sim::StepResult& result);

std::string busiest_links(const topology::Topology& cluster, std::vector<sim::LinkUse> links);
/// Nothing where the network model has no queues.
std::string longest_queues(const topology::Topology& cluster, std::vector<sim::QueueUse> queues);
/// Its longest pieces, in the order in which they happened.
void print_critical_path(const std::vector<sim::PathPiece>& path);
/// `wall`: seconds that the simulation took.
void print_step(const PlanInput& input, const sim::StepResult& result,
                const sim::SimulationOptions& options, double wall);
void print_jobs(const topology::Topology& cluster, const sim::JobsResult& result, double wall);
void print_outages(const explore::OutageResult& result);

}  // namespace rackrail::cli
