// Whether the links of an emulated network hold their rates: a plain TCP stream over each.
//
// A stream runs from one end of a link to the other and over nothing else (bridges have an address
// for it), in each direction in turn. Links are disjoint, so several are measured at the same time,
// as many as the machine can be expected to forward together. The rate is that of the payload
// between two arrivals, the first after the stream got up to speed and the last before the end.
//
// Other work on the machine can only disturb a measurement, not make a link hold a rate it does not
// have. So links that seem to be off are measured again, fewer at the same time, and of a
// direction's measurements the one nearest to the rate counts.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/units.hpp"
#include "runtime/emulate/network.hpp"

namespace rackrail::runtime::emulate {

/// Share by which a link may be off.
inline constexpr double kTolerance = 0.03;
/// Times that a link is measured before it counts as off.
inline constexpr unsigned kAttempts = 3;

struct LinkMeasurement {
  std::size_t link = 0;     ///< index in the plan
  bool is_reverse = false;  ///< from b to a
  Bandwidth expected;       ///< payload per second at the link's rate: rate · kPayloadShare
  Bandwidth measured;       ///< likewise; zero where nothing came
  double error() const { return measured / expected - 1; }
  bool is_held() const { return error() >= -kTolerance && error() <= kTolerance; }
};

/// The groups of `links` that are measured at the same time: rates of a group stay below `together`
/// (a link that is faster is alone) and it has `most` links at most. Every link is in one group.
std::vector<std::vector<std::size_t>> measurement_groups(const NetworkPlan& plan,
                                                         const std::vector<std::size_t>& links,
                                                         Bandwidth together, std::size_t most);

struct LinkCheckOptions {
  Duration warm_up = 300_ms;
  Duration duration = 700_ms;  ///< after it
  unsigned cores = 1;
  /// Asked between two groups; true ends the check early.
  std::function<bool()> is_cancelled = [] { return false; };
};

/// In the order of the links, forward before reverse; fewer where it was cancelled before all were
/// measured once. Throws
/// RuntimeFailure when sockets cannot be made or an end cannot be reached.
std::vector<LinkMeasurement> check_links(const EmulatedNetwork& network,
                                         const LinkCheckOptions& options);

}  // namespace rackrail::runtime::emulate
