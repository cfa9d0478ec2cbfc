// What PlannerOptions offers by name.
#pragma once

#include <cstdint>
#include <string_view>

#include "topology/topology.hpp"

namespace rackrail::planner {

/// How the batch is chosen.
enum class BatchPolicy {
  kGoodput,  ///< most useful samples per second, where the workload has a noise scale; else kFixed
  kLatency,  ///< largest batch · base latency / current latency: a rule of thumb, for comparison
  kFixed     ///< the profiled batch, or what memory has room for
};

enum class LearningRateRule {
  kLinear,      ///< η·B/B₀ after a warm-up (Goyal et al., arXiv 1706.02677): for SGD
  kSquareRoot,  ///< η·√(B/B₀) after a warm-up: for Adam and its kin
  kAdaScale  ///< η·r with AdaScale's gain r, which needs no warm-up (Johnson et al., ICML 2020)
};

enum class SearchEffort : std::uint8_t { kQuick, kThorough };

/// Whether a plan's routes may have rates (rule 8 of plan/transfer_graph.hpp).
enum class RouteRates : std::uint8_t {
  /// Where no rank is a GPU: executors of gradients on GPUs do not enforce them
  /// (runtime/device/device_program.hpp), and without them links are shared differently from what
  /// the plan's order assumes.
  kWhereKept,
  kAlways,
  kNever,
};

/// "goodput", "latency", "fixed"; "linear", "sqrt", "adascale".
std::string_view name_of(BatchPolicy policy);
std::string_view name_of(LearningRateRule rule);

/// Also "quick", "thorough"; "auto", "always", "never". Throw ConfigError.
BatchPolicy parse_batch_policy(std::string_view name);
LearningRateRule parse_learning_rate_rule(std::string_view name);
SearchEffort parse_search_effort(std::string_view name);
RouteRates parse_route_rates(std::string_view name);

bool may_have_rates(RouteRates rates, const topology::Topology& topology);

}  // namespace rackrail::planner
