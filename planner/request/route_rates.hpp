// Whether a plan's routes may have rates (rule 8 of plan/transfer_graph.hpp).
#pragma once

#include <cstdint>
#include <string_view>

#include "topology/topology.hpp"

namespace rackrail::planner {

enum class RouteRates : std::uint8_t {
  /// Where no rank is a GPU: executors of gradients on GPUs do not enforce them
  /// (runtime/device/device_program.hpp), and without them links are shared differently from what
  /// the plan's order assumes.
  kWhereKept,
  kAlways,
  kNever,
};

/// "auto", "always" or "never". Throws ConfigError.
RouteRates parse_route_rates(std::string_view text);

bool may_have_rates(RouteRates rates, const topology::Topology& topology);

}  // namespace rackrail::planner
