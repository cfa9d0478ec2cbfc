#include "planner/route_rates.hpp"

#include "base/ids.hpp"

namespace rackrail::planner {

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
