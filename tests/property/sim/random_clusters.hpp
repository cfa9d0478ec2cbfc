#pragma once

#include <cstdint>

#include "topology/topology.hpp"

namespace rackrail::sim::test {

/// A random cluster that depends on the seed alone, of 2 to about 16 ranks: hosts on one switch,
/// racks under spines, machines of several GPUs with and without a NIC for each, a ring of hosts,
/// or any directed graph. Links differ in rate, by direction too, and in latency; every other
/// cluster has some that are degraded to a tenth.
topology::Topology random_cluster(std::uint64_t seed);

}  // namespace rackrail::sim::test
