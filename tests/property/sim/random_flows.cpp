#include "tests/property/sim/random_flows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/random.hpp"

namespace rackrail::sim::test {

namespace {

constexpr double kSlowest = 1e6;
constexpr double kFastest = 1e12;

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : seed_(seed) {}

  std::size_t below(std::size_t limit) {
    return static_cast<std::size_t>(random_bits(seed_, counter_++) % limit);
  }
  /// In [low, high), evenly on a logarithmic scale.
  double spread(double low, double high) {
    const double unit = static_cast<double>(random_bits(seed_, counter_++) >> 11U) * 0x1p-53;
    return low * std::pow(high / low, unit);
  }

 private:
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

double capacity(Generator& random, std::size_t style, double common) {
  constexpr std::array<double, 4> kClasses{1, 2.5, 4, 10};
  switch (style) {
    case 0:
      return common;
    case 1:
      return std::round(common * kClasses[random.below(kClasses.size())]);
    default:
      return std::round(random.spread(kSlowest, kFastest));
  }
}

std::vector<LinkId> route(Generator& random, std::size_t style, std::size_t links) {
  const std::size_t length = 1 + random.below(std::min<std::size_t>(8, links));
  std::vector<LinkId> chosen;
  const std::size_t begin = random.below(links - length + 1);
  while (chosen.size() < length) {
    LinkId link(random.below(links));
    if (style == 1) {
      link = LinkId(begin + chosen.size());
    } else if (style == 2 && chosen.empty()) {
      link = LinkId(random.below(std::min<std::size_t>(3, links)));
    }
    if (std::find(chosen.begin(), chosen.end(), link) == chosen.end()) {
      chosen.push_back(link);
    }
  }
  return chosen;
}

}  // namespace

RandomFlows random_flows(std::uint64_t seed, std::size_t most_links, std::size_t most_flows) {
  constexpr std::array<const char*, 3> kCapacities{"equal", "few", "spread"};
  constexpr std::array<const char*, 3> kRoutes{"anywhere", "along a line", "through busy links"};
  constexpr std::array<std::size_t, 3> kCapped{0, 15, 60};  // percent
  Generator random(seed);
  const std::size_t capacities = random.below(kCapacities.size());
  const std::size_t routes = random.below(kRoutes.size());
  const std::size_t capped = kCapped[random.below(kCapped.size())];
  const bool starts_together = random.below(2) == 0;

  RandomFlows set;
  set.kind = std::string(kCapacities[capacities]) + " capacities, routes " + kRoutes[routes] +
             ", " + std::to_string(capped) + " % capped";
  const double common = std::round(random.spread(kSlowest, kFastest / 10));
  set.capacities.resize(1 + random.below(most_links));
  for (double& c : set.capacities) {
    c = capacity(random, capacities, common);
  }
  set.flows.resize(1 + random.below(most_flows));
  for (RandomFlow& flow : set.flows) {
    flow.links = route(random, routes, set.capacities.size());
    double alone = kFastest;
    for (const LinkId link : flow.links) {
      alone = std::min(alone, set.capacities[link.index()]);
    }
    if (random.below(100) < capped) {
      // From what never binds to what always does, some of them alike.
      const double share = random.below(4) == 0 ? 0.05 : random.spread(0.002, 2);
      flow.cap = std::round(alone * share);
      alone = std::min(alone, *flow.cap);
    }
    flow.bytes = static_cast<std::int64_t>(std::ceil(alone * random.spread(1e-3, 1)));
    if (!starts_together && random.below(2) == 0) {
      flow.start = static_cast<std::int64_t>(random.below(1'000'000)) * 1'000'000;
    }
  }
  return set;
}

void draw_shares(RandomFlows& flows, std::uint64_t seed) {
  std::uint64_t counter = 0;
  const auto next = [&](std::uint64_t below) {
    return random_bits(mix64(seed), counter++) % below;
  };
  for (RandomFlow& flow : flows.flows) {
    if (next(2) == 0) {
      continue;
    }
    const bool is_even = next(2) == 0;
    const auto ways = static_cast<double>(1 + next(16));
    for (std::size_t hop = 0; hop < flow.links.size(); ++hop) {
      flow.shares.push_back(is_even ? 1 / ways : static_cast<double>(1 + next(1000)) / 100);
    }
  }
}

topology::Topology as_topology(const RandomFlows& flows) {
  topology::Topology topology("random links");
  for (const double capacity : flows.capacities) {
    const std::string number = std::to_string(topology.link_count());
    const NodeId from = topology.add_node({.name = "a" + number});
    const NodeId to = topology.add_node({.name = "b" + number});
    topology.add_link({.from = from,
                       .to = to,
                       .bandwidth = Bandwidth(static_cast<std::int64_t>(capacity)),
                       .latency = Duration()});
  }
  return topology;
}

}  // namespace rackrail::sim::test
