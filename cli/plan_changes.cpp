#include "cli/plan_changes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>

#include "base/parse_units.hpp"

namespace rackrail::cli {

namespace {

constexpr std::size_t kMostSamplesShown = 8;

/// Adds to what goes the same two ways already.
void add_change(std::vector<GradientChange>& changes, const GradientChange& change) {
  const auto known = std::ranges::find_if(changes, [&](const GradientChange& one) {
    return std::tie(one.before, one.after, one.routes) ==
           std::tie(change.before, change.after, change.routes);
  });
  if (known == changes.end()) {
    changes.push_back(change);
  } else {
    known->gradients += change.gradients;
  }
}

Bytes gradients_of(const plan::Bucket& bucket) { return Bytes(bucket.elements * 4); }

PlanChanges figures_of(const plan::Plan& before, const plan::Plan& after) {
  PlanChanges changes;
  changes.buckets_before = before.buckets.size();
  changes.buckets = after.buckets.size();
  changes.samples_before = before.batch.local_batch;
  changes.samples = after.batch.local_batch;
  return changes;
}

std::string samples_text(const std::vector<std::int64_t>& samples) {
  if (samples.size() <= kMostSamplesShown) {
    return fmt::format("{}", fmt::join(samples, ", "));
  }
  const auto [least, most] = std::ranges::minmax(samples);
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

}  // namespace

PlanChanges changes_of(const planner::Replan& replan, const plan::Plan& before) {
  PlanChanges changes = figures_of(before, replan.plan);
  changes.is_incremental = true;
  changes.touched_buckets = replan.touched_buckets;
  for (const planner::BucketChange& change : replan.changes) {
    add_change(changes.gradients, {gradients_of(before.buckets[change.bucket]), change.before,
                                   change.after, change.routes});
  }
  return changes;
}

PlanChanges changes_between(const plan::Plan& before, const plan::Plan& after,
                            const plan::Workload& workload) {
  PlanChanges changes = figures_of(before, after);
  std::vector<std::string> names(workload.tensors.size());
  for (const plan::Bucket& bucket : before.buckets) {
    for (const std::uint32_t tensor : bucket.tensors) {
      names.at(tensor) = planner::bucket_name(before, bucket);
    }
  }
  for (const plan::Bucket& bucket : after.buckets) {
    const std::string name = planner::bucket_name(after, bucket);
    for (const std::uint32_t tensor : bucket.tensors) {
      if (names.at(tensor) != name) {
        add_change(changes.gradients, {workload.tensors[tensor].bytes(), names[tensor], name});
      }
    }
  }
  return changes;
}

std::string PlanChanges::text() const {
  std::string what;
  const auto add = [&what](const std::string& part) { what += (what.empty() ? "" : "; ") + part; };
  for (const GradientChange& change : gradients) {
    add(change.before == change.after
            ? fmt::format("{} by {} over {} other routes", to_string(change.gradients),
                          change.before, change.routes)
            : fmt::format("{} by {} instead of {}", to_string(change.gradients), change.after,
                          change.before));
  }
  if (samples != samples_before) {
    add(fmt::format("samples by rank {} instead of {}", samples_text(samples),
                    samples_text(samples_before)));
  }
  return fmt::format(
      "{} in {}, {}: {}", is_incremental ? "planned again" : "everything planned anew",
      to_string(planning_time),
      is_incremental ? fmt::format("{} of {} buckets touched", touched_buckets, buckets_before)
                     : fmt::format("{} buckets instead of {}", buckets, buckets_before),
      what.empty() ? "the same schedules" : what);
}

nlohmann::json PlanChanges::json() const {
  nlohmann::json moved = nlohmann::json::array();
  for (const GradientChange& change : gradients) {
    moved.push_back({{"bytes", change.gradients.count()},
                     {"before", change.before},
                     {"after", change.after},
                     {"routes", change.routes}});
  }
  return {{"text", text()},
          {"incremental", is_incremental},
          {"planning_s", planning_time.seconds()},
          {"touched_buckets", is_incremental ? nlohmann::json(touched_buckets) : nlohmann::json()},
          {"buckets_before", buckets_before},
          {"buckets", buckets},
          {"gradients", moved},
          {"samples_before", samples_before},
          {"samples", samples}};
}

}  // namespace rackrail::cli
