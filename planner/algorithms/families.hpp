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

/// Whether what a rank passes on has the ranges in which it came.
enum class Ranges : std::uint8_t { kKept, kJoined };

/// The refusal of a family whose partial sums take many hops, if a codec does not allow that; how
/// large errors become is the error model's to say (plan/reduced_error.hpp).
std::optional<std::string> refuse_lossy_hops(const TierCodecs& codecs,
                                             Ranges ranges = Ranges::kKept);
/// The same, or that of a single rank.
std::optional<std::string> refuse_exchange(const topology::Topology& topology,
                                           const TierCodecs& codecs, Ranges ranges = Ranges::kKept);
/// The refusal of a family that needs groups (tier_groups), one of them of several ranks.
std::optional<std::string> refuse_no_tiers(const std::vector<topology::RankGroup>& groups);
/// The refusal of a family that needs groups (tier_groups) of one size, more than one rank each.
std::optional<std::string> refuse_uneven_groups(const topology::Topology& topology);

#define RACKRAIL_REGISTER(family) std::unique_ptr<ScheduleFamily> make_##family();
#include "planner/algorithms/families.def"
#undef RACKRAIL_REGISTER

}  // namespace rackrail::planner
