#pragma once

#include <cstdint>

#include "topology/topology.hpp"

namespace rackrail::topology::test {

/// A random directed graph that depends on the seed alone: 2 to `most_ranks` ranks, up to
/// `most_switches` switches, rates of 1 to 20 units and latencies of 1 to 4 us. A ring through all
/// vertices keeps it connected; the other links go one way.
Topology random_topology(std::uint64_t seed, int most_ranks, int most_switches,
                         std::int64_t unit = 1'000'000'000);

}  // namespace rackrail::topology::test
