#include "planner/request/policies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/ids.hpp"

namespace rackrail::planner {

namespace {

constexpr std::pair<BatchPolicy, std::string_view> kPolicies[] = {
    {BatchPolicy::kGoodput, "goodput"},
    {BatchPolicy::kLatency, "latency"},
    {BatchPolicy::kFixed, "fixed"}};
constexpr std::pair<LearningRateRule, std::string_view> kRules[] = {
    {LearningRateRule::kLinear, "linear"},
    {LearningRateRule::kSquareRoot, "sqrt"},
    {LearningRateRule::kAdaScale, "adascale"}};

template <typename Names>
auto parse(const Names& names, std::string_view name, const char* what) {
  std::string known;
  for (const auto& [value, text] : names) {
    if (text == name) {
      return value;
    }
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  throw ConfigError(ErrorContext{"", what, fmt::format("'{}'", name), "one of: " + known});
}

template <typename Names, typename Value>
std::string_view name_in(const Names& names, Value value) {
  return std::ranges::find(names, value, [](const auto& one) { return one.first; })->second;
}

}  // namespace

std::string_view name_of(BatchPolicy policy) { return name_in(kPolicies, policy); }

std::string_view name_of(LearningRateRule rule) { return name_in(kRules, rule); }

BatchPolicy parse_batch_policy(std::string_view name) {
  return parse(kPolicies, name, "batch policy");
}

LearningRateRule parse_learning_rate_rule(std::string_view name) {
  return parse(kRules, name, "learning rate rule");
}

SearchEffort parse_search_effort(std::string_view name) {
  constexpr std::pair<SearchEffort, std::string_view> kEfforts[] = {
      {SearchEffort::kQuick, "quick"}, {SearchEffort::kThorough, "thorough"}};
  return parse(kEfforts, name, "search");
}

RouteRates parse_route_rates(std::string_view name) {
  constexpr std::pair<RouteRates, std::string_view> kRates[] = {{RouteRates::kWhereKept, "auto"},
                                                                {RouteRates::kAlways, "always"},
                                                                {RouteRates::kNever, "never"}};
  return parse(kRates, name, "route rates");
}

bool may_have_rates(RouteRates rates, const topology::Topology& topology) {
  if (rates != RouteRates::kWhereKept) {
    return rates == RouteRates::kAlways;
  }
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    if (topology.node(topology.node_of(Rank(r))).kind == topology::NodeKind::kGpu) {
      return false;
    }
  }
  return true;
}

}  // namespace rackrail::planner
