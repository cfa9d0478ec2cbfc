#include "planner/algorithms/server_shares.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/algorithms/part_loads.hpp"

namespace rackrail::planner {

namespace {

constexpr double kClosedFormScale = 64;
// Weights of an average share: rounding to whole ones moves a load by half a thousandth of it.
constexpr double kServerWeightScale = 1024;

/// Of each server: the routes to and from it.
PartLoads loads(const topology::Topology& topology, topology::Router& router) {
  const std::size_t n = topology.rank_count();
  PartLoads loads(topology);
  for (std::size_t server = 0; server < n; ++server) {
    for (std::size_t rank = 0; rank < n; ++rank) {
      if (rank != server) {
        loads.cross(router.route(Rank(rank), Rank(server)));
        loads.cross(router.route(Rank(server), Rank(rank)));
      }
    }
    loads.end_part();
  }
  return loads;
}

std::vector<std::uint32_t> weights_of(const std::vector<double>& shares, double scale) {
  std::vector<std::uint32_t> weights;
  for (const double share : shares) {
    weights.push_back(std::max(1U, static_cast<std::uint32_t>(std::lround(scale * share))));
  }
  if (std::ranges::all_of(weights, [&](std::uint32_t w) { return w == weights[0]; })) {
    weights.assign(weights.size(), 1);
  }
  return weights;
}

/// By the rate of the link into each rank. Shared links further away are the same for all shares.
std::vector<std::uint32_t> by_own_links(const topology::Topology& topology,
                                        topology::Router& router) {
  const std::size_t n = topology.rank_count();
  std::vector<double> rates(n, 0);
  double fastest = 0;
  for (std::size_t r = 0; r < n; ++r) {
    const std::size_t probes = std::min<std::size_t>(n - 1, 16);
    for (std::size_t i = 1; i <= probes; ++i) {
      const std::size_t other = (r + i * std::max<std::size_t>(1, n / (probes + 1))) % n;
      if (other != r) {
        const LinkId last = router.route(Rank(other), Rank(r)).back();
        rates[r] = std::max(rates[r],
                            static_cast<double>(topology.link(last).bandwidth.bytes_per_second()));
      }
    }
    fastest = std::max(fastest, rates[r]);
  }
  return weights_of(rates, kClosedFormScale / fastest);
}

}  // namespace

std::vector<std::uint32_t> server_shares(const topology::Topology& topology,
                                         topology::Router& router) {
  const std::size_t n = topology.rank_count();
  if (n <= kMostServersSolved) {
    if (const auto shares = loads(topology, router).best_shares()) {
      return weights_of(*shares, kServerWeightScale * static_cast<double>(n));
    }
  }
  return by_own_links(topology, router);
}

double exchange_time(const topology::Topology& topology, topology::Router& router,
                     const std::vector<std::uint32_t>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares;
  for (const std::uint32_t weight : weights) {
    shares.push_back(weight / sum);
  }
  return loads(topology, router).time(shares);
}

}  // namespace rackrail::planner
