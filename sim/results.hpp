// What simulations of steps and of bare collectives have in common; for sim/*.cpp only.
#pragma once

#include <string>
#include <vector>

#include "sim/simulator.hpp"

namespace rackrail::sim {

/// Throws PlanError, naming `what`, unless the cluster has as many ranks.
void require_same_ranks(const std::string& what, std::size_t ranks,
                        const topology::Topology& topology);

/// Throws ConfigError for an asynchronous scenario, where what is simulated has all ranks in step.
void require_in_step(const SimulationOptions& options);

/// Bytes per second that the link could carry on average from `from` to `to`, with what disturbs
/// it.
double mean_rate(const topology::Topology& topology, const Disturbances& disturbances, LinkId link,
                 Duration from, Duration to);

/// Of links that carried something, from the bytes of the plan and of others on each between these
/// times.
std::vector<LinkUse> link_uses(const topology::Topology& topology, const std::vector<Bytes>& bytes,
                               const std::vector<Bytes>& background,
                               const Disturbances& disturbances, Duration from, Duration to);

}  // namespace rackrail::sim
