#include "sim/packet_ways.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace rackrail::sim {

namespace {

constexpr double kAllBytes = 1 - 1e-9;  // shares are sums of fractions

}  // namespace

PacketWays::PacketWays(const topology::Topology& topology, std::span<const LinkId> route)
    : links_(route.begin(), route.end()), first_{0} {
  for (const LinkId link : route) {
    hops_.push_back({.link = link});
  }
  for (std::size_t i = 0; i + 1 < hops_.size(); ++i) {
    hops_[i].after = {static_cast<Hop>(i + 1)};
  }
  add_latencies(topology);
}

PacketWays::PacketWays(const topology::Topology& topology, const SpreadPath& path)
    : links_(path.links.begin(), path.links.end()) {
  for (std::size_t i = 0; i < path.links.size(); ++i) {
    hops_.push_back({.link = path.links[i], .share = path.shares[i]});
  }
  connect(topology);
  add_latencies(topology);
  find_kind(topology);
}

void PacketWays::connect(const topology::Topology& topology) {
  std::map<NodeId, std::vector<Hop>> beginning;
  std::map<NodeId, std::vector<Hop>> ending;
  for (std::size_t i = 0; i < hops_.size(); ++i) {
    const topology::Link& link = topology.link(hops_[i].link);
    beginning[link.from].push_back(static_cast<Hop>(i));
    ending[link.to].push_back(static_cast<Hop>(i));
  }
  for (std::size_t i = 0; i < hops_.size(); ++i) {
    const topology::Link& link = topology.link(hops_[i].link);
    if (const auto next = beginning.find(link.to); next != beginning.end()) {
      hops_[i].after = next->second;
    }
    hops_[i].joined = ending.at(link.to);
    if (ending.count(link.from) == 0) {
      first_.push_back(static_cast<Hop>(i));
    }
  }
}

void PacketWays::find_kind(const topology::Topology& topology) {
  const bool is_whole = std::all_of(hops_.begin(), hops_.end(),
                                    [](const Place& hop) { return hop.share > kAllBytes; });
  std::map<NodeId, std::size_t> sources;
  for (const Hop hop : first_) {
    ++sources[topology.link(hops_[hop].link).from];
  }
  const bool copies = is_whole && (std::any_of(hops_.begin(), hops_.end(),
                                               [](const Place& h) { return h.after.size() > 1; }) ||
                                   first_.size() > sources.size());
  const bool adds = is_whole && std::any_of(hops_.begin(), hops_.end(),
                                            [](const Place& h) { return h.joined.size() > 1; });
  if (copies && adds) {
    throw ConfigError(ErrorContext{"", "packet level", "a message that switches both copy and add",
                                   "one of the two, or the flow level"});
  }
  kind_ = !is_whole ? Kind::kInTurn : copies ? Kind::kCopies : adds ? Kind::kSums : Kind::kRoute;
  if (kind_ == Kind::kCopies) {
    receivers_ = static_cast<std::size_t>(std::count_if(
        hops_.begin(), hops_.end(), [](const Place& hop) { return hop.after.empty(); }));
  }
}

// Kahn's order backwards: a link's latency is known when that of all after it is.
void PacketWays::add_latencies(const topology::Topology& topology) {
  std::vector<std::size_t> open(hops_.size());
  std::vector<std::vector<Hop>> before(hops_.size());
  std::vector<Hop> ready;
  for (std::size_t i = 0; i < hops_.size(); ++i) {
    open[i] = hops_[i].after.size();
    for (const Hop next : hops_[i].after) {
      before[next].push_back(static_cast<Hop>(i));
    }
    if (open[i] == 0) {
      ready.push_back(static_cast<Hop>(i));
    }
  }
  for (std::size_t done = 0; done < ready.size(); ++done) {
    Place& hop = hops_[ready[done]];
    for (const Hop next : hop.after) {
      hop.latency = std::max(hop.latency, hops_[next].latency);
    }
    hop.latency += topology.link(hop.link).latency.picoseconds();
    for (const Hop previous : before[ready[done]]) {
      if (--open[previous] == 0) {
        ready.push_back(previous);
      }
    }
  }
  if (ready.size() < hops_.size() || first_.empty()) {
    throw ConfigError(ErrorContext{"", "packet level", "a message whose links go in a circle",
                                   "links from senders to receivers"});
  }
}

// Smooth weighted round robin: whoever is owed most is next.
Hop PacketWays::take_turn(Hop hop) {
  const std::vector<Hop>& after = hops_[hop].after;
  if (after.size() == 1) {
    return after.front();
  }
  double total = 0;
  for (const Hop next : after) {
    total += hops_[next].share;
  }
  Hop chosen = after.front();
  for (const Hop next : after) {
    hops_[next].owed += hops_[next].share / total;
    if (hops_[next].owed > hops_[chosen].owed) {
      chosen = next;
    }
  }
  hops_[chosen].owed -= 1;
  return chosen;
}

std::vector<LinkId> PacketWays::one_from(Hop hop) const {
  std::vector<LinkId> route = {hops_[hop].link};
  while (!hops_[hop].after.empty()) {
    hop = hops_[hop].after.front();
    route.push_back(hops_[hop].link);
  }
  return route;
}

}  // namespace rackrail::sim
