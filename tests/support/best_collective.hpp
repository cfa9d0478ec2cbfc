// The fastest schedule of all families for a collective of one size, as people get it, against the
// least time there can be. For tests and benchmarks, so that both measure the same.
#pragma once

#include <cstdint>
#include <string_view>

#include "planner/tuning/fastest_collective.hpp"
#include "topology/topology.hpp"

namespace rackrail::test {

struct BestCollective {
  std::string_view family;
  planner::FastestCollective found;
  /// Simulated to the end, as `simulate` prints it; of many ranks `found` is within 1 % of it.
  Duration time;
  double over_optimum = 0;           ///< `time` over that of optimum_of()
  bool may_be_out_of_reach = false;  ///< what that is, as for very many ranks that differ
};

/// As `rackrail simulate --collective ... --schedule best` finds it; with a family named, as
/// `--schedule` with its name does, which takes less time.
BestCollective best_collective(const topology::Topology& topology, plan::Collective what,
                               std::int64_t elements, std::string_view family = {});

struct Optimum {
  Bandwidth algbw;
  bool may_be_out_of_reach = false;
};
/// What bounds the collective: of all-reduce the joint optimum of reduction and broadcast, by
/// switches that add and copy, too, where some say that they do.
Optimum optimum_of(const topology::Topology& topology, plan::Collective what);

}  // namespace rackrail::test
