#include "sim/routing.hpp"

#include <algorithm>

namespace rackrail::sim {

std::optional<Multipath> parse_multipath(std::string_view text) {
  return text == "pinned" ? std::optional(Multipath::kPinned)
         : text == "ecmp" ? std::optional(Multipath::kEcmp)
                          : std::nullopt;
}

RouteUse route_use(const topology::Topology& topology, std::span<const LinkId> links) {
  RouteUse use{.links = {links.begin(), links.end()}};
  for (const LinkId link : links) {
    use.overhead = std::max(use.overhead, topology.link(link).overhead);
  }
  return use;
}

Routing::Routing(const topology::Topology& topology, Multipath multipath)
    : topology_(topology), router_(topology), multipath_(multipath) {}

RouteUse Routing::route(Rank src, Rank dst, std::span<const LinkId> pinned) {
  const bool is_pinned = multipath_ == Multipath::kPinned && !pinned.empty();
  return route_use(topology_, is_pinned ? pinned : router_.route(src, dst));
}

}  // namespace rackrail::sim
