// Max–min fair rates the plain way, as an oracle: everything from the beginning, no heap, no
// region, sums taken anew in every round.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace rackrail::sim::test {

struct Demand {
  std::span<const LinkId> links;
  std::optional<double> cap;
  std::span<const double> shares = {};  ///< of the rate, by link; none: all of it on each
};

/// Progressive filling (Bertsekas and Gallager, "Data Networks", 6.5.2): all rates rise together;
/// who is on a link that is full, or at his cap, stops. O(rounds · flows · route length).
std::vector<double> progressive_filling(std::span<const double> capacities,
                                        std::span<const Demand> demands);

/// Empty when `rates` are max–min fair within the relative `slack`, else what is wrong: a link that
/// carries more than its capacity, or a flow below its cap without a full link on which no flow is
/// faster. This characterises the allocation, so it also judges progressive_filling().
std::string why_unfair(std::span<const double> capacities, std::span<const Demand> demands,
                       std::span<const double> rates, double slack);

}  // namespace rackrail::sim::test
