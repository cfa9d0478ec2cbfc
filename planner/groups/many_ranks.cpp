#include "planner/groups/many_ranks.hpp"

#include <optional>

namespace rackrail::planner {

namespace {

/// Whether cables between switches outside hosts have several rates.
bool are_switch_links_unlike(const topology::Topology& topology) {
  const auto is_outside = [&](NodeId node) {
    return topology.node(node).host.empty() && !topology.rank_of(node);
  };
  std::optional<Bandwidth> rate;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    if (is_outside(link.from) && is_outside(link.to)) {
      if (rate.value_or(link.bandwidth) != link.bandwidth) {
        return true;
      }
      rate = link.bandwidth;
    }
  }
  return false;
}

}  // namespace

topology::Router make_router(const topology::Topology& topology) {
  return topology::Router(topology,
                          are_switch_links_unlike(topology) ? topology::Distance::kMessage
                                                            : topology::Distance::kLatency,
                          topology.rank_count() < kVeryManyRanks ? topology::EqualRoutes::kHashed
                                                                 : topology::EqualRoutes::kDealt);
}

}  // namespace rackrail::planner
