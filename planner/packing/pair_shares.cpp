#include "planner/packing/pair_shares.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace rackrail::planner {

namespace {

constexpr std::int64_t kUnits = 1U << 16;  // that all pairs together have
constexpr double kNotWorthATree = 2e-3;    // of the rate: the thinnest trees that are left out

void drop_thin(std::vector<double>& shares) {
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return shares[a] < shares[b]; });
  double spare = kNotWorthATree * std::accumulate(shares.begin(), shares.end(), 0.0);
  for (const std::size_t p : order) {
    spare -= shares[p];
    if (spare < 0) {
      return;
    }
    shares[p] = 0;
  }
}

}  // namespace

std::vector<std::int64_t> units_of(std::vector<double> shares) {
  drop_thin(shares);
  const double whole = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::int64_t> units;
  for (const double share : shares) {
    units.push_back(std::llround(share / whole * static_cast<double>(kUnits)));
  }
  return units;
}

}  // namespace rackrail::planner
