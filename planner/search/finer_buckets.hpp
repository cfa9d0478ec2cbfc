// Buckets of a finished plan, divided as finely as collectives that run alone.
//
// The search tries few variants of each family, as there are many candidates. A program that
// reduces one buffer at a time gains from finer rounds and slices, and from transfers in the order
// of their urgency (collective_forms.hpp), maybe so much that another family is the fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Which buckets may get the fastest division of another family than theirs.
enum class OfAnyFamily {
  kNone,
  /// Those with one codec on all transfers, where the division's error is within the budget:
  /// another route of a codec may apply it more often.
  kWithinBudget,
  kAll,
};

/// Of more ranks, a form takes seconds to be simulated.
inline constexpr std::size_t kMostRanksDividedFinely = 32;

struct FinerBuckets {
  OfAnyFamily of_any_family = OfAnyFamily::kNone;
  double error_budget = 0;          ///< of OfAnyFamily::kWithinBudget
  bool may_lighten = false;         ///< buckets with stronger codecs than FP16 are tried in FP16
  bool may_have_rates = true;       ///< of routes: the plan's executor enforces them
  std::int64_t least_elements = 0;  ///< smaller ones are not divided
  std::function<bool()> stop;       ///< asked between simulations; may be empty
};

/// Gives each bucket the fastest division of its family, or of any, with its codec (or FP16) on all
/// transfers, where that makes the step faster; the largest buckets first. A bucket that keeps its
/// family and has several codecs stays as it is. No message becomes smaller than 32 KiB, as it is
/// sent, by it: below, one costs a processor more than a network gains (results/emulated-racks.md,
/// 8-bit blocks). `plan` must have schedules,
/// and a predicted step time, which is updated (not its gap). On more than kMostRanksDividedFinely
/// it does nothing.
void divide_finely(plan::Plan& plan, const plan::Workload& workload,
                   const topology::Topology& topology, plan::CostModel& cost_model,
                   const FinerBuckets& options);

}  // namespace rackrail::planner
