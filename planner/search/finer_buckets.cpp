#include "planner/search/finer_buckets.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/work.hpp"
#include "plan/alpha_beta.hpp"
#include "plan/reduced_error.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/search/held_rates.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "planner/tuning/fastest_collective.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

/// That of all transfers, if it is one.
std::optional<plan::Codec> only_codec(const plan::TransferGraph& graph) {
  const auto transfers = graph.transfers();
  const bool is_one =
      !transfers.empty() &&
      std::all_of(transfers.begin(), transfers.end(), [&](const plan::Transfer& transfer) {
        return transfer.codec == transfers.front().codec;
      });
  return is_one ? std::optional(graph.codecs()[transfers.front().codec]) : std::nullopt;
}

struct Division {
  plan::Codec codec;
  plan::TransferGraph schedule;
  std::int64_t slice_elements = 0;
};

/// The fastest forms of schedule families for a size, each reduced alone.
class Divider {
 public:
  Divider(const topology::Topology& topology, const plan::Workload& workload,
          plan::CostModel& cost_model, const FinerBuckets& options)
      : topology_(topology),
        workload_(workload),
        router_(make_router(topology)),
        cost_model_(cost_model),
        options_(options) {}

  /// Of the family of that name only, or of every one (no name) that the options allow; none where
  /// it has no such form.
  std::optional<Division> fastest(std::string_view only_family, const plan::Codec& codec,
                                  std::int64_t elements);

 private:
  /// Made when they are needed; without forms where the family has none.
  const FamilyDivisions& divisions_of(const ScheduleFamily& family, const plan::Codec& codec);
  /// Whether the errors of the graph's codecs are allowed for buckets that change their family.
  bool is_right_enough(const plan::TransferGraph& graph) const;
  bool is_stopped() const { return options_.stop && options_.stop(); }

  const topology::Topology& topology_;
  const plan::Workload& workload_;
  topology::Router router_;
  plan::CostModel& cost_model_;
  const FinerBuckets& options_;
  std::map<std::pair<const ScheduleFamily*, std::string>, FamilyDivisions>
      known_;  ///< by codec, too
};

const FamilyDivisions& Divider::divisions_of(const ScheduleFamily& family,
                                             const plan::Codec& codec) {
  const std::pair key(&family, plan::to_string(codec));
  if (const auto known = known_.find(key); known != known_.end()) {
    return known->second;
  }
  std::vector<CollectiveForm> forms;
  try {
    const StoppableWork stoppable(options_.stop);
    if (!graph_refusal(family, topology_, {codec, codec})) {
      forms = collective_forms(family, plan::Collective::kAllReduce, topology_, router_,
                               {codec, codec}, {.may_have_rates = options_.may_have_rates});
    }
  } catch (const WorkStopped&) {
    // It has none then.
  }
  return known_.emplace(key, FamilyDivisions(std::move(forms), cost_model_)).first->second;
}

bool Divider::is_right_enough(const plan::TransferGraph& graph) const {
  const auto error_of = [this](const plan::Codec& codec) { return workload_.codec_error(codec); };
  return options_.of_any_family != OfAnyFamily::kWithinBudget ||
         plan::reduced_error(graph, error_of) <= options_.error_budget;
}

std::optional<Division> Divider::fastest(std::string_view only_family, const plan::Codec& codec,
                                         std::int64_t elements) {
  std::vector<std::pair<Duration, const FamilyDivisions*>> by_bound;
  for (const auto& family : schedule_families()) {
    if (!only_family.empty() && family->name() != only_family) {
      continue;
    }
    if (is_stopped()) {
      return std::nullopt;
    }
    const FamilyDivisions& divisions = divisions_of(*family, codec);
    if (!divisions.forms().empty()) {
      by_bound.emplace_back(divisions.at_least(elements), &divisions);
    }
  }
  std::ranges::stable_sort(by_bound, {}, [](const auto& one) { return one.first; });
  const FamilyDivisions* best = nullptr;
  DividedCollective how;
  for (const auto& [bound, divisions] : by_bound) {
    if (best != nullptr && (bound >= how.time || is_stopped())) {
      break;
    }
    try {
      const StoppableWork stoppable(options_.stop);
      const DividedCollective divided =
          judged_division(divisions->forms(), codec, elements, cost_model_, topology_);
      const bool is_allowed =
          !only_family.empty() || is_right_enough(divisions->forms()[divided.form].graph());
      if (is_allowed && (best == nullptr || divided.time < how.time)) {
        best = divisions;
        how = divided;
      }
    } catch (const WorkStopped&) {
      break;
    }
  }
  if (best == nullptr) {
    return std::nullopt;
  }
  return Division{codec, best->forms()[how.form].graph(), how.slice_elements};
}

/// Whether the step is faster with this division of the bucket, which it then has. Where that has
/// rates, or does not flood a rank, it may take longer than `fastest`, what any plan so far takes,
/// by what rates may cost; by what short messages may cost where those before were longer.
bool take_if_faster(plan::Plan& plan, std::size_t index, Division division,
                    const plan::Workload& workload, const topology::Topology& topology,
                    plan::CostModel& cost_model, Duration& fastest) {
  plan::Bucket& bucket = plan.buckets[index];
  const plan::Bucket before = bucket;
  const plan::TransferGraph& in_use = plan.schedules[bucket.schedule];
  const bool gains_rates = gains_from_rates(division.schedule, topology) &&
                           division.schedule.has_rates() && !in_use.has_rates() &&
                           is_crowded(division.schedule, topology);
  const bool had_long_messages = !has_short_messages(plan, bucket);
  plan.schedules.push_back(std::move(division.schedule));
  bucket.schedule = static_cast<std::uint32_t>(plan.schedules.size() - 1);
  bucket.slice_elements = division.slice_elements;
  bucket.codec = division.codec;
  bucket.codec_tiers = codecs_by_tier(topology, plan.schedules.back());
  const plan::StepEstimate estimate = cost_model.step(plan, workload);
  const bool is_long =
      plan::alpha_beta(plan.schedules.back(), topology).at_least(bucket.elements) >= kLongForRates;
  Duration limit = plan.prediction.step_time;
  if (is_long && gains_rates) {
    limit = scaled(fastest, kMostForSharedRates);
  } else if (is_long && had_long_messages && has_short_messages(plan, bucket)) {
    limit = std::max(limit, scaled(fastest, kMostForShortMessages));
  }
  if (estimate.step_time >= limit) {
    bucket = before;
    plan.schedules.pop_back();
    return false;
  }
  plan.prediction.step_time = estimate.step_time;
  plan.prediction.sync_share = estimate.sync_share;
  fastest = std::min(fastest, estimate.step_time);
  return true;
}

void drop_unused_schedules(plan::Plan& plan) {
  std::map<std::uint32_t, std::uint32_t> numbers;
  std::vector<plan::TransferGraph> used;
  for (plan::Bucket& bucket : plan.buckets) {
    const auto [it, added] =
        numbers.emplace(bucket.schedule, static_cast<std::uint32_t>(used.size()));
    if (added) {
      used.push_back(std::move(plan.schedules[bucket.schedule]));
    }
    bucket.schedule = it->second;
  }
  plan.schedules = std::move(used);
}

}  // namespace

void divide_finely(plan::Plan& plan, const plan::Workload& workload,
                   const topology::Topology& topology, plan::CostModel& cost_model,
                   const FinerBuckets& options) {
  if (topology.rank_count() > kMostRanksDividedFinely) {
    return;
  }
  Divider divider(topology, workload, cost_model, options);
  std::vector<std::size_t> order(plan.buckets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return plan.buckets[a].elements > plan.buckets[b].elements;
  });
  Duration fastest = plan.prediction.step_time;
  const plan::Codec kLighter{.kind = plan::CodecKind::kFp16};
  for (const std::size_t b : order) {
    const plan::Bucket& bucket = plan.buckets[b];
    if (bucket.elements < options.least_elements || (options.stop && options.stop())) {
      break;
    }
    const bool is_stronger =
        options.may_lighten && plan::encoded_size(bucket.codec, bucket.elements) <
                                   plan::encoded_size(kLighter, bucket.elements);
    const plan::TransferGraph& chosen = plan.schedules[bucket.schedule];
    const std::string family(chosen.name());
    const std::optional<plan::Codec> one = only_codec(chosen);
    const bool may_change =
        options.of_any_family == OfAnyFamily::kAll ||
        (options.of_any_family == OfAnyFamily::kWithinBudget && one.has_value());
    const auto is_taken = [&](std::string_view of, const plan::Codec& codec) {
      auto division = divider.fastest(of, codec, bucket.elements);
      return division &&
             take_if_faster(plan, b, *std::move(division), workload, topology, cost_model, fastest);
    };
    bool has_changed = may_change && is_taken({}, one.value_or(bucket.codec));
    // The search compared codecs by its few forms; by these finer ones FP16 may be faster.
    if (is_stronger && is_taken({}, kLighter)) {
      has_changed = true;
    }
    // What is fastest alone need not be in the step: then the finest of its own family may be.
    if (!has_changed && one) {
      is_taken(family, *one);
    }
  }
  drop_unused_schedules(plan);
}

}  // namespace rackrail::planner
