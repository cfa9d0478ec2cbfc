#include "planner/schedules/grid_shares.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/schedules/bucket_algorithm.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostDimensionsBalanced = 5;
constexpr double kWorthUnequalShares = 1e-6;  // of the time
constexpr double kMeanWeight = 4096;
constexpr double kSingular = 1e-12;  // a pivot, of rows whose largest entry is 1

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

/// Weights by what each phase, in the order of scattering, takes of a link of its dimension.
template <typename TimeOfPhase>
std::vector<std::uint32_t> weights_of_phases(const RankGrid& grid,
                                             const topology::Topology& topology,
                                             const TimeOfPhase& time_of_phase) {
  const std::vector<double> rates = dimension_rates(grid, topology);
  Rows times;
  for (std::uint32_t first = 0; first < grid.dimensions.size(); ++first) {
    auto& of_part = times.emplace_back(grid.dimensions.size());
    double left = 1;  // of the part, of which each rank has its own sums before the phase
    for (const std::uint32_t d : scatter_order(grid, first)) {
      of_part[d] = left * time_of_phase(grid.dimensions[d]) / rates[d];
      left /= grid.dimensions[d].size;
    }
  }
  return weights_by(balanced_shares(times));
}

}  // namespace

std::vector<double> dimension_rates(const RankGrid& grid, const topology::Topology& topology) {
  std::vector<double> rates(grid.dimensions.size(), std::numeric_limits<double>::infinity());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    const auto from = topology.rank_of(link.from);
    const auto to = topology.rank_of(link.to);
    if (!from || !to) {
      continue;
    }
    for (std::size_t d = 0; d < rates.size(); ++d) {
      if (grid.coordinates[from->index()][d] != grid.coordinates[to->index()][d]) {
        rates[d] = std::min(rates[d], static_cast<double>(link.bandwidth.bytes_per_second()));
      }
    }
  }
  return rates;
}

std::vector<double> balanced_shares(std::vector<std::vector<double>> times) {
  const std::size_t n = times.size();
  std::vector<double> best(n, 1 / static_cast<double>(n));
  double longest = 0;
  for (const auto& of_part : times) {
    longest = std::max(longest, *std::ranges::max_element(of_part));
  }
  if (n > kMostDimensionsBalanced || longest <= 0) {
    return best;
  }
  for (auto& of_part : times) {
    for (double& time : of_part) {
      time /= longest;  // whatever the unit, singular is singular
    }
  }
  double least = time_with(times, best);
  for (std::uint32_t of_parts = (1U << n) - 1; of_parts > 0; --of_parts) {
    for (std::uint32_t of_dimensions = (1U << n) - 1; of_dimensions > 0; --of_dimensions) {
      if (std::popcount(of_parts) != std::popcount(of_dimensions)) {
        continue;
      }
      const auto shares = equalised(times, members_of(of_parts, n), members_of(of_dimensions, n));
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
  return weights_of_phases(grid, topology, [](const RankGrid::Dimension& dimension) {
    const double size = dimension.size;
    return (size - 1) / size / (dimension.is_ring ? 2 : 1);
  });
}

// Sums go along a link of a path, or copies do. All but one of a ring's links are in a tree.
std::vector<std::uint32_t> tree_weights(const RankGrid& grid, const topology::Topology& topology) {
  return weights_of_phases(grid, topology, [](const RankGrid::Dimension& dimension) {
    const double size = dimension.size;
    return dimension.is_ring ? (size - 1) / size : 1;
  });
}

}  // namespace rackrail::planner
