#include "planner/algorithms/grid_shares.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/algorithms/torus_exchange.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostDimensionsBalanced = 5;
constexpr double kWorthUnequalShares = 1e-6;  // of the time
constexpr std::size_t kMostPartsBalanced = 6;
constexpr double kMeanWeight = 4096;
constexpr double kLeastShare = 1e-4;  // of trees of an order
constexpr double kSingular = 1e-12;   // a pivot, of rows whose largest entry is 1

using Rows = std::vector<std::vector<double>>;

/// x of a system of as many rows as unknowns, with the right side as the last column; none where it
/// is singular.
std::optional<std::vector<double>> solved(Rows rows) {
  const std::size_t n = rows.size();
  for (std::size_t column = 0; column < n; ++column) {
    const auto pivot = std::max_element(
        rows.begin() + static_cast<std::ptrdiff_t>(column), rows.end(),
        [&](const auto& a, const auto& b) { return std::abs(a[column]) < std::abs(b[column]); });
    if (std::abs((*pivot)[column]) < kSingular) {
      return std::nullopt;
    }
    std::swap(*pivot, rows[column]);
    for (std::size_t row = 0; row < n; ++row) {
      if (row == column) {
        continue;
      }
      const double factor = rows[row][column] / rows[column][column];
      for (std::size_t i = column; i <= n; ++i) {
        rows[row][i] -= factor * rows[column][i];
      }
    }
  }
  std::vector<double> x;
  for (std::size_t i = 0; i < n; ++i) {
    x.push_back(rows[i][n] / rows[i][i]);
  }
  return x;
}

std::vector<std::size_t> members_of(std::uint32_t set, std::size_t of) {
  std::vector<std::size_t> members;
  for (std::size_t i = 0; i < of; ++i) {
    if ((set >> i & 1U) != 0) {
      members.push_back(i);
    }
  }
  return members;
}

/// Shares of these parts, and none of the others, that keep these dimensions equally busy.
std::optional<std::vector<double>> equalised(const Rows& times,
                                             const std::vector<std::size_t>& parts,
                                             const std::vector<std::size_t>& dimensions) {
  const std::size_t n = parts.size();
  Rows rows;
  for (const std::size_t d : dimensions) {
    auto& row = rows.emplace_back();
    for (const std::size_t p : parts) {
      row.push_back(times[p][d]);
    }
    row.push_back(-1);  // the time
    row.push_back(0);
  }
  rows.emplace_back(n, 1.0).insert(rows.back().end(), {0, 1});
  const auto x = solved(std::move(rows));
  if (!x || std::any_of(x->begin(), x->end() - 1, [](double share) { return share < 0; })) {
    return std::nullopt;
  }
  std::vector<double> shares(times.size());
  for (std::size_t i = 0; i < n; ++i) {
    shares[parts[i]] = (*x)[i];
  }
  return shares;
}

double time_with(const Rows& times, const std::vector<double>& shares) {
  double longest = 0;
  for (std::size_t d = 0; d < times[0].size(); ++d) {
    double time = 0;
    for (std::size_t p = 0; p < times.size(); ++p) {
      time += shares[p] * times[p][d];
    }
    longest = std::max(longest, time);
  }
  return longest;
}

std::vector<std::uint32_t> weights_by(const std::vector<double>& shares) {
  std::vector<std::uint32_t> weights;
  std::uint32_t common = 0;
  for (const double share : shares) {
    weights.push_back(static_cast<std::uint32_t>(
        std::lround(kMeanWeight * share * static_cast<double>(shares.size()))));
    common = std::gcd(common, weights.back());
  }
  for (std::uint32_t& weight : weights) {
    weight /= common;
  }
  return weights;
}

/// What each phase, in this order, takes of a link of its dimension, by dimension.
template <typename TimeOfPhase>
std::vector<double> times_in_order(const RankGrid& grid, const std::vector<double>& rates,
                                   const std::vector<std::uint32_t>& order,
                                   const TimeOfPhase& time_of_phase) {
  std::vector<double> times(order.size());
  double left = 1;  // of the buffer, of which each rank has its own sums before the phase
  for (std::size_t phase = 0; phase < order.size(); ++phase) {
    const std::uint32_t d = order[phase];
    times[d] = left * time_of_phase(grid.dimensions[d], phase) / rates[d];
    left /= grid.dimensions[d].size;
  }
  return times;
}

/// Calls `visit` with the dimension and the rate of each link between ranks.
template <typename Visit>
void each_link(const RankGrid& grid, const topology::Topology& topology, const Visit& visit) {
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    const auto from = topology.rank_of(link.from);
    const auto to = topology.rank_of(link.to);
    if (!from || !to) {
      continue;
    }
    for (std::size_t d = 0; d < grid.dimensions.size(); ++d) {
      if (grid.coordinates[from->index()][d] != grid.coordinates[to->index()][d]) {
        visit(d, static_cast<double>(link.bandwidth.bytes_per_second()));
      }
    }
  }
}

}  // namespace

std::vector<double> dimension_rates(const RankGrid& grid, const topology::Topology& topology) {
  std::vector<double> rates(grid.dimensions.size(), std::numeric_limits<double>::infinity());
  each_link(grid, topology,
            [&](std::size_t d, double rate) { rates[d] = std::min(rates[d], rate); });
  return rates;
}

bool are_lines_even(const RankGrid& grid, const topology::Topology& topology) {
  const std::vector<double> slowest = dimension_rates(grid, topology);
  bool are_even = true;
  each_link(grid, topology,
            [&](std::size_t d, double rate) { are_even = are_even && rate <= slowest[d]; });
  return are_even;
}

std::vector<double> balanced_shares(std::vector<std::vector<double>> times) {
  const std::size_t parts = times.size();
  const std::size_t dimensions = times[0].size();
  // As many as dimensions, or all if they are fewer.
  const std::size_t alike = std::min(parts, dimensions);
  std::vector<double> best(parts);
  std::fill_n(best.begin(), alike, 1 / static_cast<double>(alike));
  double longest = 0;
  for (const auto& of_part : times) {
    longest = std::max(longest, *std::ranges::max_element(of_part));
  }
  if (dimensions > kMostDimensionsBalanced || parts > kMostPartsBalanced || longest <= 0) {
    return best;
  }
  for (auto& of_part : times) {
    for (double& time : of_part) {
      time /= longest;  // whatever the unit, singular is singular
    }
  }
  double least = time_with(times, best);
  for (std::uint32_t of_parts = (1U << parts) - 1; of_parts > 0; --of_parts) {
    for (std::uint32_t of_dimensions = (1U << dimensions) - 1; of_dimensions > 0; --of_dimensions) {
      if (std::popcount(of_parts) != std::popcount(of_dimensions)) {
        continue;
      }
      const auto shares =
          equalised(times, members_of(of_parts, parts), members_of(of_dimensions, dimensions));
      if (shares && time_with(times, *shares) < (1 - kWorthUnequalShares) * least) {
        best = *shares;
        least = time_with(times, best);
      }
    }
  }
  return best;
}

// A range goes once around a ring, half of all ranges each way; the link at the end of a path
// carries all but one.
std::vector<std::uint32_t> bucket_weights(const RankGrid& grid,
                                          const topology::Topology& topology) {
  const std::vector<double> rates = dimension_rates(grid, topology);
  Rows times;
  for (std::uint32_t first = 0; first < grid.dimensions.size(); ++first) {
    times.push_back(times_in_order(grid, rates, scatter_order(grid, first),
                                   [](const RankGrid::Dimension& dimension, auto) {
                                     const double size = dimension.size;
                                     return (size - 1) / size / (dimension.is_ring ? 2 : 1);
                                   }));
  }
  return weights_by(balanced_shares(times));
}

// Sums go along a link of a path, or copies do. All but one of a ring's links are in a tree, which
// of them the root's place decides.
std::vector<TreeOrder> tree_orders(const RankGrid& grid, const topology::Topology& topology,
                                   bool are_all_round) {
  const std::size_t dimensions = grid.dimensions.size();
  const std::vector<double> rates = dimension_rates(grid, topology);
  const auto time_of_phase = [&](const RankGrid::Dimension& dimension, std::size_t phase) {
    const double size = dimension.size;
    const bool are_even = dimension.is_ring && (phase + 1 < dimensions || are_all_round);
    return are_even ? (size - 1) / size : 1;
  };
  std::vector<TreeOrder> orders;
  Rows times;
  const auto add = [&](std::vector<std::uint32_t> order) {
    times.push_back(times_in_order(grid, rates, order, time_of_phase));
    orders.push_back({std::move(order), 0});
  };
  for (std::uint32_t first = 0; first < dimensions; ++first) {
    add(scatter_order(grid, first));
  }
  for (std::uint32_t first = 0; dimensions == 3 && first < dimensions; ++first) {
    std::vector<std::uint32_t> order = scatter_order(grid, first);
    std::ranges::reverse(order);
    add(std::move(order));
  }
  const std::vector<double> shares = balanced_shares(times);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    orders[i].share = shares[i];
  }
  std::erase_if(orders, [](const TreeOrder& order) { return order.share < kLeastShare; });
  return orders;
}

}  // namespace rackrail::planner
