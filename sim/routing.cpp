#include "sim/routing.hpp"

#include <algorithm>
#include <cmath>

#include "base/random.hpp"

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

Routing::Routing(const topology::Topology& topology, Multipath multipath, std::uint64_t seed,
                 int connections)
    : topology_(topology), multipath_(multipath) {
  const bool is_hashed = multipath == Multipath::kEcmp;
  routers_.emplace_back(topology, is_hashed ? seed : 0);
  for (int c = 1; is_hashed && c < connections; ++c) {
    routers_.emplace_back(topology, random_bits(seed, static_cast<std::uint64_t>(c)));
  }
}

// The links of all connections, with the part of them that is on each.
void Routing::add_connections(Rank src, Rank dst, RouteUse& use) {
  std::vector<std::size_t> counts;
  for (topology::Router& router : routers_) {
    for (const LinkId link : router.route(src, dst)) {
      const auto known = std::find(use.links.begin(), use.links.end(), link);
      if (known == use.links.end()) {
        use.links.push_back(link);
        counts.push_back(1);
      } else {
        ++counts[static_cast<std::size_t>(known - use.links.begin())];
      }
    }
  }
  for (const std::size_t count : counts) {
    use.shares.push_back(static_cast<double>(count) / static_cast<double>(routers_.size()));
  }
}

RouteUse Routing::route(Rank src, Rank dst, std::span<const LinkId> pinned) {
  RouteUse use;
  if (multipath_ == Multipath::kSpray) {
    for (const topology::LinkShare& part : routers_.front().spread(src, dst)) {
      use.links.push_back(part.link);
      use.shares.push_back(part.share);
    }
  } else if (multipath_ == Multipath::kPinned && !pinned.empty()) {
    use.links.assign(pinned.begin(), pinned.end());
  } else if (routers_.size() > 1) {
    add_connections(src, dst, use);
  } else {
    use.links = routers_.front().route(src, dst);
  }
  if (std::all_of(use.shares.begin(), use.shares.end(), [](double share) { return share == 1; })) {
    use.shares.clear();
  }
  // Of routes of equal latency, the mean is that of each.
  double latency = 0;
  for (std::size_t i = 0; i < use.links.size(); ++i) {
    const topology::Link& link = topology_.link(use.links[i]);
    latency += share_of(use, i) * static_cast<double>(link.latency.picoseconds());
    use.overhead = std::max(use.overhead, link.overhead);
    use.receive_overhead = std::max(use.receive_overhead, link.receive_overhead);
    limit_rate(use, link,
               routers_.size() > 1 ? 1 / static_cast<double>(routers_.size()) : share_of(use, i));
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
