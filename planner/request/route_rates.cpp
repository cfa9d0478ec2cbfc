#include "planner/request/route_rates.hpp"

#include <string>

#include "base/error.hpp"
#include "base/ids.hpp"

namespace rackrail::planner {

RouteRates parse_route_rates(std::string_view text) {
  if (text == "auto") {
    return RouteRates::kWhereKept;
  }
  if (text == "always") {
    return RouteRates::kAlways;
  }
  if (text == "never") {
    return RouteRates::kNever;
  }
  throw ConfigError(
      ErrorContext{"", "route rates", "'" + std::string(text) + "'", "auto, always or never"});
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
