#include "planner/request/policies.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace rackrail::planner {

namespace {

constexpr std::array<std::pair<BatchPolicy, std::string_view>, 3> kPolicies = {
    {{BatchPolicy::kGoodput, "goodput"},
     {BatchPolicy::kLatency, "latency"},
     {BatchPolicy::kFixed, "fixed"}}};
constexpr std::array<std::pair<LearningRateRule, std::string_view>, 3> kRules = {
    {{LearningRateRule::kLinear, "linear"},
     {LearningRateRule::kSquareRoot, "sqrt"},
     {LearningRateRule::kAdaScale, "adascale"}}};

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
  for (const auto& [known, text] : names) {
    if (known == value) {
      return text;
    }
  }
  return {};
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

}  // namespace rackrail::planner
