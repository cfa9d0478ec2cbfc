#include "tests/property/sim/progressive_filling.hpp"

#include <algorithm>
#include <limits>

namespace rackrail::sim::test {

namespace {
double share_of(const Demand& demand, std::size_t hop) {
  return demand.shares.empty() ? 1 : demand.shares[hop];
}
}  // namespace

std::vector<double> progressive_filling(std::span<const double> capacities,
                                        std::span<const Demand> demands) {
  // Levels this close are one level: what is full by symmetry fills up in one round.
  constexpr double kSame = 1 + 1e-12;
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  std::vector<double> rates(demands.size());
  std::vector<bool> stands(demands.size());
  std::vector<double> taken(capacities.size());
  std::vector<double> rising(capacities.size());
  for (std::size_t left = demands.size(); left > 0;) {
    std::fill(taken.begin(), taken.end(), 0);
    std::fill(rising.begin(), rising.end(), 0);
    double level = kInfinite;
    for (std::size_t f = 0; f < demands.size(); ++f) {
      for (std::size_t hop = 0; hop < demands[f].links.size(); ++hop) {
        (stands[f] ? taken : rising)[demands[f].links[hop].index()] +=
            share_of(demands[f], hop) * (stands[f] ? rates[f] : 1);
      }
      if (!stands[f]) {
        level = std::min(level, demands[f].cap.value_or(level));
      }
    }
    const auto full_at = [&](std::size_t l) { return (capacities[l] - taken[l]) / rising[l]; };
    for (std::size_t l = 0; l < capacities.size(); ++l) {
      if (rising[l] > 0) {
        level = std::min(level, full_at(l));
      }
    }
    for (std::size_t f = 0; f < demands.size(); ++f) {
      const auto& links = demands[f].links;
      if (!stands[f] && (demands[f].cap.value_or(kInfinite) <= level * kSame ||
                         std::any_of(links.begin(), links.end(), [&](LinkId link) {
                           return full_at(link.index()) <= level * kSame;
                         }))) {
        stands[f] = true;
        rates[f] = level;
        --left;
      }
    }
  }
  return rates;
}

std::string why_unfair(std::span<const double> capacities, std::span<const Demand> demands,
                       std::span<const double> rates, double slack) {
  std::vector<double> used(capacities.size());
  std::vector<double> fastest(capacities.size());
  for (std::size_t f = 0; f < demands.size(); ++f) {
    for (std::size_t hop = 0; hop < demands[f].links.size(); ++hop) {
      const LinkId link = demands[f].links[hop];
      used[link.index()] += rates[f] * share_of(demands[f], hop);
      fastest[link.index()] = std::max(fastest[link.index()], rates[f]);
    }
    if (demands[f].cap && rates[f] > *demands[f].cap * (1 + slack)) {
      return "flow " + std::to_string(f) + " is faster than its cap";
    }
  }
  for (std::size_t l = 0; l < capacities.size(); ++l) {
    if (used[l] > capacities[l] * (1 + slack)) {
      return "link " + std::to_string(l) + " carries " + std::to_string(used[l]) + " of " +
             std::to_string(capacities[l]);
    }
  }
  for (std::size_t f = 0; f < demands.size(); ++f) {
    const auto& links = demands[f].links;
    const bool is_capped = demands[f].cap && rates[f] >= *demands[f].cap * (1 - slack);
    if (!is_capped && std::none_of(links.begin(), links.end(), [&](LinkId link) {
          const std::size_t l = link.index();
          return used[l] >= capacities[l] * (1 - slack) && rates[f] >= fastest[l] * (1 - slack);
        })) {
      return "flow " + std::to_string(f) + " has neither a bottleneck nor its cap at " +
             std::to_string(rates[f]);
    }
  }
  return {};
}

}  // namespace rackrail::sim::test
