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
#include "planner/search/judged_division.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

// Where a large bucket takes a lighter codec, the strong ones of smaller ones may be in its way: of
// those of a fourth of its size at least, so many are looked at.
constexpr std::int64_t kSmallerOnceLightened = 4;
constexpr int kMostSmallerBuckets = 8;

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
  struct Family {
    const ScheduleFamily* family = nullptr;
    bool is_made = false;
    std::vector<CollectiveForm> forms;

    Duration at_least(std::int64_t elements) const;
  };

  /// Those that accept the codec; their forms are made when they are needed.
  std::vector<Family>& families(const plan::Codec& codec);
  void make_forms(Family& family, const plan::Codec& codec);
  /// Whether the errors of the graph's codecs are allowed for buckets that change their family.
  bool is_right_enough(const plan::TransferGraph& graph) const;
  bool is_stopped() const { return options_.stop && options_.stop(); }

  const topology::Topology& topology_;
  const plan::Workload& workload_;
  topology::Router router_;
  plan::CostModel& cost_model_;
  const FinerBuckets& options_;
  std::vector<std::pair<plan::Codec, std::vector<Family>>> known_;
};

Duration Divider::Family::at_least(std::int64_t elements) const {
  Duration least(INT64_MAX);
  for (const CollectiveForm& form : forms) {
    least = std::min(least, form.shape().bound.value().at_least(elements));
  }
  return least;
}

std::vector<Divider::Family>& Divider::families(const plan::Codec& codec) {
  for (auto& [of, families] : known_) {
    if (of == codec) {
      return families;
    }
  }
  std::vector<Family>& families = known_.emplace_back(codec, std::vector<Family>{}).second;
  for (const auto& one : schedule_families()) {
    if (!graph_refusal(*one, topology_, {codec, codec})) {
      families.emplace_back().family = one.get();
    }
  }
  return families;
}

void Divider::make_forms(Family& family, const plan::Codec& codec) {
  if (family.is_made) {
    return;
  }
  family.is_made = true;
  try {
    const StoppableWork stoppable(options_.stop);
    family.forms =
        collective_forms(*family.family, plan::Collective::kAllReduce, topology_, router_,
                         {codec, codec}, {.may_have_rates = options_.may_have_rates});
  } catch (const WorkStopped&) {
    // It has none then.
  }
}

bool Divider::is_right_enough(const plan::TransferGraph& graph) const {
  const auto error_of = [this](const plan::Codec& codec) { return workload_.codec_error(codec); };
  return options_.of_any_family != OfAnyFamily::kWithinBudget ||
         plan::reduced_error(graph, error_of) <= options_.error_budget;
}

std::optional<Division> Divider::fastest(std::string_view only_family, const plan::Codec& codec,
                                         std::int64_t elements) {
  std::vector<std::pair<Duration, const Family*>> by_bound;
  for (Family& family : families(codec)) {
    if (!only_family.empty() && family.family->name() != only_family) {
      continue;
    }
    if (is_stopped()) {
      return std::nullopt;
    }
    make_forms(family, codec);
    if (!family.forms.empty()) {
      by_bound.emplace_back(family.at_least(elements), &family);
    }
  }
  std::stable_sort(by_bound.begin(), by_bound.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const Family* best = nullptr;
  DividedCollective how;
  for (const auto& [bound, family] : by_bound) {
    if (best != nullptr && (bound >= how.time || is_stopped())) {
      break;
    }
    try {
      const StoppableWork stoppable(options_.stop);
      const DividedCollective divided =
          judged_division(family->forms, codec, elements, cost_model_, topology_);
      const bool is_allowed =
          !only_family.empty() || is_right_enough(family->forms[divided.form].graph());
      if (is_allowed && (best == nullptr || divided.time < how.time)) {
        best = family;
        how = divided;
      }
    } catch (const WorkStopped&) {
      break;
    }
  }
  if (best == nullptr) {
    return std::nullopt;
  }
  return Division{codec, best->forms[how.form].graph(), how.slice_elements};
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
  bool has_lightened = false;
  int smaller = 0;
  const plan::Codec kLighter{.kind = plan::CodecKind::kFp16};
  for (const std::size_t b : order) {
    if (options.stop && options.stop()) {
      break;
    }
    const plan::Bucket& bucket = plan.buckets[b];
    const bool is_stronger =
        options.may_lighten && plan::encoded_size(bucket.codec, bucket.elements) <
                                   plan::encoded_size(kLighter, bucket.elements);
    if (bucket.elements < options.least_elements) {
      const bool is_near = bucket.elements >= options.least_elements / kSmallerOnceLightened;
      if (!has_lightened || !is_stronger || !is_near || smaller++ >= kMostSmallerBuckets) {
        continue;
      }
    }
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
      has_changed = has_lightened = true;
    }
    // What is fastest alone need not be in the step: then the finest of its own family may be.
    if (!has_changed && one) {
      is_taken(family, *one);
    }
  }
  drop_unused_schedules(plan);
}

}  // namespace rackrail::planner
