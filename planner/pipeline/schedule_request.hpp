// What a schedule is made for: a cluster, its routes, codecs, and how finely it may be divided.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "plan/codec.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Of one graph. A transfer takes about 100 bytes, and as much again in each simulation.
inline constexpr std::uint64_t kMostPlannedTransfers = std::uint64_t{1} << 22U;

/// Which codec to use on transfers inside a group of ranks (a host; a rack where hosts hold one
/// rank) and on transfers between groups.
struct TierCodecs {
  plan::Codec inside;
  plan::Codec across;

  bool operator==(const TierCodecs& other) const = default;
};

/// In a step other buckets follow, which fill what one leaves of the network.
inline constexpr std::size_t kRoundsOfBuckets = 16;

/// Making graphs takes seconds for hundreds of ranks: it counts its work and can be stopped
/// (StoppableWork, base/work.hpp).
struct ScheduleRequest {
  const topology::Topology& topology;
  topology::Router& router;
  TierCodecs codecs;
  /// How finely pipelines may be divided: rounds, and transfers of the whole graph. More than these
  /// are worth their while for one large collective, not among many candidates.
  std::size_t most_rounds = kRoundsOfBuckets;
  std::size_t most_transfers = 130'000;
  bool may_have_rates = true;  ///< routes, in collectives(): some executors do not enforce them
  /// Of collectives(): so many transfers may have what nothing else comes near to, and what gains
  /// by very many pieces, if that is more; trees on grids four times as many.
  std::size_t most_of_pipelines = 0;

  std::size_t most_pieces() const { return std::max(most_transfers, most_of_pipelines); }
};

}  // namespace rackrail::planner
