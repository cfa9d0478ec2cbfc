#include "sim/routing.hpp"

#include <algorithm>
#include <utility>

#include "base/random.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim {

std::optional<Multipath> parse_multipath(std::string_view text) {
  if (text == "pinned") {
    return Multipath::kPinned;
  }
  return text == "ecmp"    ? std::optional(Multipath::kEcmp)
         : text == "spray" ? std::optional(Multipath::kSpray)
                           : std::nullopt;
}

topology::Distance distance_of(Multipath multipath) {
  return multipath == Multipath::kPinned ? topology::Distance::kLatency : topology::Distance::kHops;
}

double rate_alone(const topology::Topology& topology, const RouteUse& use, std::size_t i) {
  return static_cast<double>(topology.link(use.links[i]).bandwidth.bytes_per_second()) /
         share_of(use, i);
}

namespace {

void cap_rate(RouteUse& use, double cap) {
  if (cap > 0 && (use.rate_cap == 0 || cap < use.rate_cap)) {
    use.rate_cap = cap;
  }
}

}  // namespace

void limit_rate(RouteUse& use, const topology::Link& link, double share) {
  cap_rate(use, static_cast<double>(link.flow_bandwidth.bytes_per_second()) / share);
}

void limit_rate(RouteUse& use, Bandwidth rate) {
  cap_rate(use, static_cast<double>(rate.bytes_per_second()));
}

void hold_to_rate(RouteUse& use, Rank src, const topology::Topology& topology, Bandwidth rate) {
  if (topology.processor_of(src)) {
    use.pace = static_cast<double>(rate.bytes_per_second());
  } else {
    limit_rate(use, rate);
  }
}

std::uint32_t route_number(const RouteUse& route) {
  std::uint64_t hash = route.links.size();
  for (const LinkId link : route.links) {
    hash = mix64(hash ^ link.value());
  }
  return static_cast<std::uint32_t>(hash >> 32U);
}

Routing::Routing(const topology::Topology& topology, Multipath multipath, std::uint64_t seed,
                 int connections)
    : topology_(topology), multipath_(multipath) {
  const bool is_hashed = multipath == Multipath::kEcmp;
  const topology::Distance distance = distance_of(multipath);
  routers_.emplace_back(topology, distance, is_hashed ? seed : 0);
  for (int c = 1; is_hashed && c < connections; ++c) {
    routers_.emplace_back(topology, distance, random_bits(seed, static_cast<std::uint64_t>(c)));
  }
}

Routing::Routing(const topology::Topology& topology, const SimulationOptions& options)
    : Routing(topology, options.multipath, options.disturbances.seed, options.connections) {
  if (options.network == NetworkLevel::kPacket) {
    meeting_edges_ = plan::MeetingEdges::kOneByOne;
  }
}

// The links of all connections, with the part of them that is on each.
void Routing::add_connections(Rank src, Rank dst, RouteUse& use) {
  std::vector<std::size_t> counts;
  for (topology::Router& router : routers_) {
    const topology::Route& route = router.route(src, dst);
    use.latency = std::max(use.latency, topology::route_latency(topology_, route));
    for (const LinkId link : route) {
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

// Links of several ways come in an order in which none is before those that lead to it.
void Routing::add_ways(Rank src, Rank dst, RouteUse& use) {
  std::vector<std::pair<NodeId, Duration>> reached = {{topology_.node_of(src), Duration()}};
  const auto latest = [&](NodeId node) -> Duration& {
    const auto known = std::find_if(reached.begin(), reached.end(),
                                    [&](const auto& entry) { return entry.first == node; });
    return known != reached.end() ? known->second : reached.emplace_back(node, Duration()).second;
  };
  for (const topology::LinkShare& part : routers_.front().spread(src, dst)) {
    use.links.push_back(part.link);
    use.shares.push_back(part.share);
    const topology::Link& link = topology_.link(part.link);
    const Duration there = latest(link.from) + link.latency;
    latest(link.to) = std::max(latest(link.to), there);
  }
  use.latency = latest(topology_.node_of(dst));
}

RouteUse Routing::route(Rank src, Rank dst, std::span<const LinkId> pinned) {
  RouteUse use;
  if (multipath_ == Multipath::kSpray) {
    add_ways(src, dst, use);
  } else if (multipath_ == Multipath::kPinned && !pinned.empty()) {
    use.links.assign(pinned.begin(), pinned.end());
    use.latency = topology::route_latency(topology_, use.links);
  } else if (routers_.size() > 1) {
    add_connections(src, dst, use);
  } else {
    use.links = routers_.front().route(src, dst);
    use.latency = topology::route_latency(topology_, use.links);
  }
  if (std::all_of(use.shares.begin(), use.shares.end(), [](double share) { return share == 1; })) {
    use.shares.clear();
  }
  for (std::size_t i = 0; i < use.links.size(); ++i) {
    const topology::Link& link = topology_.link(use.links[i]);
    use.overhead = std::max(use.overhead, link.overhead);
    use.receive_overhead = std::max(use.receive_overhead, link.receive_overhead);
    limit_rate(use, link,
               routers_.size() > 1 ? 1 / static_cast<double>(routers_.size()) : share_of(use, i));
  }
  stage(topology_, src, dst, use);
  charge_cores(src, true, use);
  charge_cores(dst, false, use);
  return use;
}

void Routing::stage(const topology::Topology& topology, Rank src, Rank dst, RouteUse& use) {
  const auto limit = [](Bandwidth& rate, Bandwidth other) {
    if (other > Bandwidth() && (rate == Bandwidth() || other < rate)) {
      rate = other;
    }
  };
  const topology::Staging staging = topology::staging_between(topology, src, dst, use.links);
  limit(use.copy_out, staging.out);
  limit(use.copy_in, staging.in);
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
