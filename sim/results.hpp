// What simulations of steps and of bare collectives have in common; for sim/*.cpp only.
#pragma once

#include <string>
#include <vector>

#include "sim/engine.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim {

/// Throws PlanError, naming `what`, unless the cluster has as many ranks.
void require_same_ranks(const std::string& what, std::size_t ranks,
                        const topology::Topology& topology);

/// Throws ConfigError for an asynchronous scenario, where what is simulated has all ranks in step.
void require_in_step(const SimulationOptions& options);

/// Whether links carry more than the bytes of messages.
bool has_headers(const SimulationOptions& options);

/// Bytes per second that the link could carry on average from `from` to `to`, with what disturbs
/// it.
double mean_rate(const topology::Topology& topology, const Disturbances& disturbances, LinkId link,
                 Duration from, Duration to);

/// What these links could carry in each of `count` equal parts of the time from `start` on, with
/// what disturbs them: bytes at [i · links.size() + j], of links[j] in part i.
std::vector<double> possible_bytes(const topology::Topology& topology,
                                   const Disturbances& disturbances,
                                   const std::vector<LinkId>& links, Duration start, Duration part,
                                   std::size_t count);

/// Of links that carried something: `bytes` are LinkUse::bytes, and what was carried between these
/// times is `carried` or, where that does not know of the plan, `bytes` too.
std::vector<LinkUse> link_uses(const topology::Topology& topology, const std::vector<Bytes>& bytes,
                               const Carried& carried, const Disturbances& disturbances,
                               Duration from, Duration to);

}  // namespace rackrail::sim
