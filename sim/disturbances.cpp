#include "sim/disturbances.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/random.hpp"

namespace rackrail::sim {

namespace {

/// Standard normal (Box and Muller, 1958).
double random_normal(std::uint64_t key, std::uint64_t counter) {
  const double u = 1 - random_unit(key, 2 * counter);
  const double v = random_unit(key, 2 * counter + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace

double slowdown(const Disturbances& disturbances, Rank rank, int step) {
  double factor = 1;
  for (std::size_t i = 0; i < disturbances.slow_devices.size(); ++i) {
    const SlowDevice& slow = disturbances.slow_devices[i];
    const bool is_meant = slow.ranks.empty() ||
                          std::find(slow.ranks.begin(), slow.ranks.end(), rank) != slow.ranks.end();
    if (!is_meant || step < slow.first_step || step > slow.last_step) {
      continue;
    }
    factor *= slow.factor;
    if (slow.sigma > 0) {
      const std::uint64_t counter =
          (std::uint64_t{rank.value()} << 32U) | static_cast<std::uint32_t>(step);
      const double normal = random_normal(mix64(disturbances.seed + i), counter);
      factor *= std::exp(slow.sigma * normal - slow.sigma * slow.sigma / 2);
    }
  }
  return factor;
}

topology::Topology at_best(const topology::Topology& topology, const Disturbances& disturbances,
                           Duration until) {
  std::map<LinkId, Bandwidth> most;
  for (const CapacityChange& change : disturbances.capacity) {  // in the order of time
    if (change.at > Duration() && change.at >= until) {
      continue;
    }
    const Bandwidth before =
        change.at > Duration() ? topology.link(change.link).bandwidth : Bandwidth(0);
    const auto known = most.emplace(change.link, before).first;
    known->second = std::max(known->second, change.bandwidth);
  }
  topology::Topology best = topology;
  for (const auto& [link, rate] : most) {
    best.set_link_rate(link, std::max(rate, Bandwidth(1)), topology.link(link).latency);
  }
  return best;
}

}  // namespace rackrail::sim
