#include "planner/algorithms/families.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rackrail::planner {

GraphSize exchange_size(std::uint64_t ranks) {
  const std::uint64_t movements = 2 * ranks * (ranks - 1);
  return {movements, movements};
}

std::optional<std::string> refuse_lossy_hops(const TierCodecs& codecs, Ranges ranges) {
  for (const plan::Codec& codec : {codecs.inside, codecs.across}) {
    if (codec.is_sparse()) {
      return fmt::format("partial sums take several hops, of which {} would send but a part",
                         plan::to_string(codec));
    }
    if (ranges == Ranges::kJoined && codec.is_lossy() && !codec.is_elementwise()) {
      return fmt::format("it joins what came in several ranges, which {} would encode anew",
                         plan::to_string(codec));
    }
  }
  // One version of a chunk in two codecs would leave ranks with different bits.
  if (!(codecs.inside == codecs.across)) {
    return "it crosses tiers in both directions, so it takes one codec for all of them";
  }
  return std::nullopt;
}

std::optional<std::string> refuse_exchange(const topology::Topology& topology,
                                           const TierCodecs& codecs, Ranges ranges) {
  if (topology.rank_count() < 2) {
    return "one rank alone has nothing to exchange";
  }
  return refuse_lossy_hops(codecs, ranges);
}

std::optional<std::string> refuse_no_tiers(const std::vector<topology::RankGroup>& groups) {
  if (groups.size() < 2) {
    return "there is one group of ranks only";
  }
  if (std::all_of(groups.begin(), groups.end(),
                  [](const topology::RankGroup& group) { return group.ranks.size() < 2; })) {
    return "no host or rack has several ranks, as far as the cluster's file names them; in an edge "
           "list, a table 'vertex,role,host' does";
  }
  return std::nullopt;
}

std::optional<std::string> refuse_uneven_groups(const topology::Topology& topology) {
  const auto groups = tier_groups(topology);
  if (auto refusal = refuse_no_tiers(groups)) {
    return refusal;
  }
  for (const auto& group : groups) {
    if (group.ranks.size() != groups[0].ranks.size()) {
      return fmt::format("groups differ in size: {} has {} ranks, {} has {}", groups[0].name,
                         groups[0].ranks.size(), group.name, group.ranks.size());
    }
  }
  return std::nullopt;
}

}  // namespace rackrail::planner
