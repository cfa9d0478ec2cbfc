// What algorithms share: why they refuse a cluster, how large their graphs are, and their
// factories.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/pipeline/builder.hpp"

namespace rackrail::planner {

/// Of schedules in which each of n parts goes to, and comes back from, all other ranks one by one.
GraphSize exchange_size(std::uint64_t ranks);

/// Whether a codec may be applied again at every hop: FP32 and FP16 may, 8-bit blocks and top-k
/// would add their error at each of them.
bool survives_many_hops(const plan::Codec& codec);
/// The refusal of a family whose partial sums take many hops, if a codec does not survive them.
std::optional<std::string> refuse_lossy_hops(const TierCodecs& codecs);
/// The same, or that of a single rank.
std::optional<std::string> refuse_exchange(const topology::Topology& topology,
                                           const TierCodecs& codecs);
/// The refusal of a family that needs groups (tier_groups), one of them of several ranks.
std::optional<std::string> refuse_no_tiers(const std::vector<topology::RankGroup>& groups);
/// The refusal of a family that needs groups (tier_groups) of one size, more than one rank each.
std::optional<std::string> refuse_uneven_groups(const topology::Topology& topology);

#define RACKRAIL_REGISTER(family) std::unique_ptr<ScheduleFamily> make_##family();
#include "planner/algorithms/families.def"
#undef RACKRAIL_REGISTER

}  // namespace rackrail::planner
