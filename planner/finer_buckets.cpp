#include "planner/finer_buckets.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "planner/collective_forms.hpp"
#include "planner/schedule_family.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

constexpr std::int64_t kLeastMessage = 8192;  // elements
constexpr std::size_t kMostRanks = 32;        // of more, a form takes seconds to be simulated
constexpr Duration kTooFine = Duration(INT64_MAX);

const ScheduleFamily* family_of(const plan::TransferGraph& graph) {
  for (const auto& family : schedule_families()) {
    if (family->name() == graph.name()) {
      return family.get();
    }
  }
  return nullptr;
}

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

/// One bucket's fastest division, if there is a choice.
std::optional<std::pair<plan::TransferGraph, std::int64_t>> finest(
    const plan::Plan& plan, const plan::Bucket& bucket, const topology::Topology& topology,
    topology::Router& router, plan::CostModel& cost_model) {
  const plan::TransferGraph& graph = plan.schedules[bucket.schedule];
  const ScheduleFamily* family = family_of(graph);
  const std::optional<plan::Codec> codec = only_codec(graph);
  if (family == nullptr || !codec) {
    return std::nullopt;
  }
  auto forms =
      collective_forms(*family, plan::Collective::kAllReduce, topology, router, {*codec, *codec});
  std::vector<FormShape> shapes;
  for (const plan::TransferGraph& form : forms) {
    shapes.push_back(shape_of(form));
  }
  if (shapes.empty()) {
    return std::nullopt;
  }
  const std::size_t coarsest =
      static_cast<std::size_t>(std::min_element(shapes.begin(), shapes.end(),
                                                [](const FormShape& a, const FormShape& b) {
                                                  return a.transfers < b.transfers;
                                                }) -
                               shapes.begin());
  const auto time = [&](std::size_t form, std::int64_t slice) {
    const auto largest = static_cast<std::int64_t>(shapes[form].largest_share *
                                                   static_cast<double>(bucket.elements));
    const bool is_whole = form == coarsest && slice >= largest;
    const bool is_too_fine = !is_whole && std::min(slice, largest) < kLeastMessage;
    return is_too_fine ? kTooFine : cost_model.collective_time(forms[form], bucket.elements, slice);
  };
  const DividedCollective best = fastest_division(shapes, bucket.elements, time);
  return std::pair(std::move(forms[best.form]), best.slice_elements);
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
                   const std::function<bool()>& stop) {
  if (topology.rank_count() > kMostRanks) {
    return;
  }
  topology::Router router(topology);
  std::vector<std::size_t> order(plan.buckets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return plan.buckets[a].elements > plan.buckets[b].elements;
  });
  for (const std::size_t b : order) {
    if (stop && stop()) {
      break;
    }
    auto division = finest(plan, plan.buckets[b], topology, router, cost_model);
    if (!division) {
      continue;
    }
    plan::Bucket& bucket = plan.buckets[b];
    const plan::Bucket before = bucket;
    plan.schedules.push_back(std::move(division->first));
    bucket.schedule = static_cast<std::uint32_t>(plan.schedules.size() - 1);
    bucket.slice_elements = division->second;
    const plan::StepEstimate estimate = cost_model.step(plan, workload);
    if (estimate.step_time < plan.prediction.step_time) {
      plan.prediction.step_time = estimate.step_time;
      plan.prediction.sync_share = estimate.sync_share;
    } else {
      bucket = before;
      plan.schedules.pop_back();
    }
  }
  drop_unused_schedules(plan);
}

}  // namespace rackrail::planner
