// How batch and learning rate are chosen: what PlannerOptions offers by name.
#pragma once

#include <string_view>

namespace rackrail::planner {

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

/// "goodput", "latency", "fixed"; "linear", "sqrt", "adascale". Reading throws ConfigError.
std::string_view name_of(BatchPolicy policy);
std::string_view name_of(LearningRateRule rule);
BatchPolicy parse_batch_policy(std::string_view name);
LearningRateRule parse_learning_rate_rule(std::string_view name);

}  // namespace rackrail::planner
