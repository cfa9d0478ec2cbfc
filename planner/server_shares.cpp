#include "planner/server_shares.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "topology/linear_program.hpp"

namespace rackrail::planner {

namespace {

constexpr double kClosedFormScale = 64;
// Weights of an average share: rounding to whole ones moves a load by half a thousandth of it.
constexpr double kWeightScale = 1024;
constexpr double kSame = 1e-9;       // relative, of sums of a few thousand terms
constexpr double kTolerance = 1e-7;  // of the solver

/// How often the routes to and from each server cross a link; servers ascending.
using Crossings = std::vector<std::pair<int, int>>;

/// Links by what they carry: of those that carry the same, the narrowest, in bytes per second.
std::map<Crossings, double> loads(const topology::Topology& topology, topology::Router& router) {
  const std::size_t n = topology.rank_count();
  std::vector<Crossings> by_link(topology.link_count());
  std::vector<int> count(topology.link_count(), 0);
  std::vector<LinkId> touched;
  for (std::size_t server = 0; server < n; ++server) {
    const auto cross = [&](const topology::Route& route) {
      for (const LinkId link : route) {
        if (count[link.index()]++ == 0) {
          touched.push_back(link);
        }
      }
    };
    for (std::size_t rank = 0; rank < n; ++rank) {
      if (rank != server) {
        cross(router.route(Rank(rank), Rank(server)));
        cross(router.route(Rank(server), Rank(rank)));
      }
    }
    for (const LinkId link : touched) {
      by_link[link.index()].emplace_back(static_cast<int>(server),
                                         std::exchange(count[link.index()], 0));
    }
    touched.clear();
  }
  std::map<Crossings, double> result;
  for (std::size_t l = 0; l < by_link.size(); ++l) {
    if (!by_link[l].empty()) {
      const auto rate = static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second());
      const auto [known, is_new] = result.emplace(std::move(by_link[l]), rate);
      known->second = std::min(known->second, rate);
    }
  }
  return result;
}

double time_of(const std::map<Crossings, double>& loads, const std::vector<double>& shares) {
  double longest = 0;
  for (const auto& [crossings, rate] : loads) {
    double bytes = 0;
    for (const auto& [server, count] : crossings) {
      bytes += count * shares[static_cast<std::size_t>(server)];
    }
    longest = std::max(longest, bytes / rate);
  }
  return longest;
}

/// A proof for symmetric clusters, without a solver. For any weights y of links that sum to 1,
/// every w takes at least min_s Σ_l y_l·c_ls/bandwidth_l; here y is the same for all links that are
/// busiest with equal shares.
bool is_optimum_equal(const std::map<Crossings, double>& loads, std::size_t n) {
  const std::vector<double> equal(n, 1 / static_cast<double>(n));
  const double longest = time_of(loads, equal);
  std::vector<double> by_server(n, 0);
  for (const auto& [crossings, rate] : loads) {
    if (time_of({{crossings, rate}}, equal) < longest * (1 - kSame)) {
      continue;
    }
    for (const auto& [server, count] : crossings) {
      by_server[static_cast<std::size_t>(server)] += count / rate;
    }
  }
  const auto [least, most] = std::ranges::minmax(by_server);
  return least >= most * (1 - kSame);
}

/// The program with T at most `longest`: what it minimises is T, or the largest share.
std::optional<std::vector<double>> solve(const std::map<Crossings, double>& loads, std::size_t n,
                                         double longest, bool is_time_fixed) {
  topology::LinearProgram program;
  const int most = program.add_variable(1, -1);  // in units of `longest`, or the largest share
  topology::LinearProgram::Terms sum;
  for (std::size_t s = 0; s < n; ++s) {
    const int share = program.add_variable(1, 0);
    sum.emplace_back(share, 1);
    if (is_time_fixed) {
      program.add_row({{most, 1}, {share, -1}}, 0);
    }
  }
  program.add_row(sum, 1, true);
  for (const auto& [crossings, rate] : loads) {
    // As Σ w = 1, what all servers have in common is a constant: few terms are left.
    const bool is_of_all = crossings.size() == n;
    int common = is_of_all ? crossings.front().second : 0;
    for (const auto& [server, count] : crossings) {
      common = is_of_all ? std::min(common, count) : 0;
    }
    const double unit = 1 / (rate * longest);
    topology::LinearProgram::Terms terms;
    for (const auto& [server, count] : crossings) {
      if (count > common) {
        terms.emplace_back(sum[static_cast<std::size_t>(server)].first, -(count - common) * unit);
      }
    }
    if (is_time_fixed) {
      program.add_row(terms, common * unit - 1);
    } else {
      terms.emplace_back(most, 1);
      program.add_row(terms, common * unit);
    }
  }
  if (!program.maximise()) {
    return std::nullopt;
  }
  std::vector<double> shares;
  for (const auto& [share, one] : sum) {
    shares.push_back(std::max(0.0, program.value(share)));
  }
  return shares;
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
  if (n > kMostServersSolved || !topology::LinearProgram::is_available()) {
    return by_own_links(topology, router);
  }
  const std::map<Crossings, double> all = loads(topology, router);
  if (is_optimum_equal(all, n)) {
    return std::vector<std::uint32_t>(n, 1);
  }
  const std::vector<double> equal(n, 1 / static_cast<double>(n));
  std::optional<std::vector<double>> shares = solve(all, n, time_of(all, equal), false);
  if (!shares) {
    return by_own_links(topology, router);
  }
  const double least = time_of(all, *shares);
  if (auto even = solve(all, n, least * (1 + kTolerance), true)) {
    shares = std::move(even);
  }
  return weights_of(*shares, kWeightScale * static_cast<double>(n));
}

double exchange_time(const topology::Topology& topology, topology::Router& router,
                     const std::vector<std::uint32_t>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> shares;
  for (const std::uint32_t weight : weights) {
    shares.push_back(weight / sum);
  }
  return time_of(loads(topology, router), shares);
}

}  // namespace rackrail::planner
