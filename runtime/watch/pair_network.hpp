// Which links can be told apart by who sends to whom.
//
// A link whose traffic is that of the same pairs of ranks as another's is slow or well for the same
// measurements: a rack's uplink into the core and the other rack's out of it, where there are two
// racks. Such links are one strand. Routes are those of the router (topology/queries.hpp); where
// the network spreads a pair over several equal paths, that is one of them.
#pragma once

#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "topology/topology.hpp"

namespace rackrail::runtime {

/// Source and destination.
using RankPair = std::pair<Rank, Rank>;

/// Links that exactly these pairs use.
struct Strand {
  std::vector<LinkId> links;    ///< ascending
  std::vector<RankPair> pairs;  ///< ascending
};

/// All links that a pair uses, in strands, in the order of their first links. Throws ConfigError
/// when there is no way between two ranks.
std::vector<Strand> strands_of(const topology::Topology& cluster,
                               const std::vector<RankPair>& pairs);

}  // namespace rackrail::runtime
