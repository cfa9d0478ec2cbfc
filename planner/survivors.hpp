// What a plan for the ranks that are left keeps of the one before.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "plan/plan.hpp"

namespace rackrail::planner {

/// The samples of all ranks, `before` by rank, among those that are left in proportion to what they
/// had: whole numbers with the same sum, each the proportional share rounded up or down.
std::vector<std::int64_t> divide_batch(const std::vector<std::int64_t>& before,
                                       const std::vector<Rank>& left);

/// Another number of samples in the same proportions.
std::vector<std::int64_t> divide_batch(const std::vector<std::int64_t>& before,
                                       const std::vector<Rank>& left, std::int64_t samples);

/// The plan's error budget where it uses codecs, else 0: who has exact sums keeps them.
double budget_in_use(const plan::Plan& plan);

}  // namespace rackrail::planner
