#include "sim/routing.hpp"

#include <algorithm>
#include <cmath>

namespace rackrail::sim {

std::optional<Multipath> parse_multipath(std::string_view text) {
  if (text == "pinned") {
    return Multipath::kPinned;
  }
  return text == "ecmp"    ? std::optional(Multipath::kEcmp)
         : text == "spray" ? std::optional(Multipath::kSpray)
                           : std::nullopt;
}

double rate_alone(const topology::Topology& topology, const RouteUse& use, std::size_t i) {
  return static_cast<double>(topology.link(use.links[i]).bandwidth.bytes_per_second()) /
         share_of(use, i);
}

void limit_rate(RouteUse& use, const topology::Link& link, double share) {
  const double cap = static_cast<double>(link.flow_bandwidth.bytes_per_second()) / share;
  if (cap > 0 && (use.rate_cap == 0 || cap < use.rate_cap)) {
    use.rate_cap = cap;
  }
}

Routing::Routing(const topology::Topology& topology, Multipath multipath, std::uint64_t seed)
    : topology_(topology),
      router_(topology, multipath == Multipath::kEcmp ? seed : 0),
      multipath_(multipath) {}

RouteUse Routing::route(Rank src, Rank dst, std::span<const LinkId> pinned) {
  RouteUse use;
  if (multipath_ == Multipath::kSpray) {
    for (const topology::LinkShare& part : router_.spread(src, dst)) {
      use.links.push_back(part.link);
      use.shares.push_back(part.share);
    }
    if (std::all_of(use.shares.begin(), use.shares.end(),
                    [](double share) { return share == 1; })) {
      use.shares.clear();
    }
  } else if (multipath_ == Multipath::kPinned && !pinned.empty()) {
    use.links.assign(pinned.begin(), pinned.end());
  } else {
    use.links = router_.route(src, dst);
  }
  // Of routes of equal latency, the mean is that of each.
  double latency = 0;
  for (std::size_t i = 0; i < use.links.size(); ++i) {
    const topology::Link& link = topology_.link(use.links[i]);
    latency += share_of(use, i) * static_cast<double>(link.latency.picoseconds());
    use.overhead = std::max(use.overhead, link.overhead);
    use.receive_overhead = std::max(use.receive_overhead, link.receive_overhead);
    limit_rate(use, link, share_of(use, i));
  }
  use.latency = Duration(std::llround(latency));
  charge_cores(src, true, use);
  charge_cores(dst, false, use);
  return use;
}

void Routing::charge_cores(Rank rank, bool sends, RouteUse& use) const {
  const std::optional<LinkId> processor = topology_.processor_of(rank);
  if (!processor) {
    return;
  }
  const topology::Node& own = topology_.node(topology_.node_of(rank));
  const auto capacity =
      static_cast<double>(topology_.link(*processor).bandwidth.bytes_per_second());
  double cost = 0;
  for (std::size_t i = 0; i < use.links.size(); ++i) {
    const topology::Link& link = topology_.link(use.links[i]);
    const NodeId end = sends ? link.from : link.to;
    const bool is_own = end == topology_.node_of(rank) ||
                        (!own.host.empty() && topology_.node(end).host == own.host);
    // The share of a processor is another one: of one core.
    if (is_own && use.links[i] != *processor) {
      cost += share_of(use, i) * capacity * link.cpu_share /
              static_cast<double>(link.bandwidth.bytes_per_second());
    }
  }
  if (cost == 0) {
    return;
  }
  use.shares.resize(use.links.size(), 1);
  const auto there = std::find(use.links.begin(), use.links.end(), *processor);
  if (there != use.links.end()) {
    use.shares[static_cast<std::size_t>(there - use.links.begin())] += cost;
  } else {
    use.links.push_back(*processor);
    use.shares.push_back(cost);
  }
}

}  // namespace rackrail::sim
