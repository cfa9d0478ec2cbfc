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

/// Of links that carried something, from the bytes of each in `time`.
std::vector<LinkUse> link_uses(const topology::Topology& topology, const std::vector<Bytes>& bytes,
                               Duration time);

}  // namespace rackrail::sim
