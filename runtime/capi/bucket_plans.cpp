#include "runtime/capi/bucket_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "plan/empty_plan.hpp"
#include "plan/verifier.hpp"
#include "planner/planner.hpp"
#include "planner/search/finer_buckets.hpp"
#include "planner/tuning/candidates.hpp"
#include "runtime/capi/time_shares.hpp"
#include "sim/simulator.hpp"

namespace rackrail::capi {
namespace {

// Sizes grow by four, and with three of each every number of the smallest pieces can be put
// together; one more of the smallest holds the rest, and one more of the largest fills the network
// while large arrays are sent.
constexpr std::int64_t kSmallestPiece = 1 << 10;
constexpr std::int64_t kLargestPiece = 1 << 20;
constexpr std::int64_t kGrowth = 4;
constexpr int kOfEach = 3;
constexpr std::chrono::seconds kTimeForPieces(20);
/// In which a search on kMostRanksDividedFinely ranks finds schedules that suit the size.
constexpr std::chrono::milliseconds kLeastTimeForSize(1500);
constexpr std::chrono::seconds kTimeForBuckets(10);

std::vector<Piece> make_pieces() {
  std::vector<Piece> result;
  for (std::int64_t size = kLargestPiece; size >= kSmallestPiece; size /= kGrowth) {
    const bool is_end = size == kLargestPiece || size == kSmallestPiece;
    for (int i = 0; i < kOfEach + (is_end ? 1 : 0); ++i) {
      result.push_back({BucketId(result.size()), size});
    }
  }
  return result;
}

plan::Workload workload_of(std::span<const BucketRequest> requests) {
  plan::Workload workload;
  workload.name = "buckets of a program";
  Duration before;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    workload.tensors.push_back({.name = fmt::format("bucket{}", i),
                                .elements = requests[i].elements,
                                .ready_gap = requests[i].ready - before});
    before = requests[i].ready;
  }
  return workload;
}

planner::RouteRates rates_if(bool may_have_rates) {
  return may_have_rates ? planner::RouteRates::kAlways : planner::RouteRates::kNever;
}

using PlanningClock = TimeShares::Clock;

std::function<bool()> stop_at(PlanningClock::time_point end) {
  return [end] { return PlanningClock::now() >= end; };
}

plan::Plan plan_until(std::function<bool()> stop, const topology::Topology& cluster,
                      std::span<const BucketRequest> requests, const CodecChoice& codec,
                      bool may_have_rates) {
  const plan::Workload workload = workload_of(requests);
  const auto costs = sim::make_cost_model(cluster, {});
  planner::PlannerOptions options;
  options.codec = codec;
  options.divides_finely = true;
  options.route_rates = rates_if(may_have_rates);
  options.bucket_size = Bytes(4);  // one float: no bucket takes in the next
  options.local_batch = 1;
  options.protect_outer_layers = false;
  options.compare_baselines = false;
  options.stop = std::move(stop);
  plan::Plan plan = planner::make_plan(cluster, workload, *costs, options);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    if (plan.buckets.size() != requests.size() ||
        plan.buckets[b].tensors != std::vector<std::uint32_t>{static_cast<std::uint32_t>(b)}) {
      throw PlanError("the planner did not keep the buckets as they were given");
    }
  }
  return plan;
}

plan::Plan empty_plan_of_pieces(const topology::Topology& cluster) {
  plan::Plan plan = plan::empty_plan(cluster);
  plan.name = "pieces of arrays";
  plan.workload_name = plan.name;
  return plan;
}

/// Each as a bucket of its size that a program announces would be planned.
plan::Plan plan_pieces_as_buckets(const topology::Topology& cluster, bool may_have_rates) {
  std::set<std::int64_t> sizes;
  for (const Piece& piece : pieces()) {
    sizes.insert(piece.elements);
  }
  TimeShares shares(PlanningClock::now(), kTimeForPieces, kLeastTimeForSize, sizes.size());
  plan::Plan plan = empty_plan_of_pieces(cluster);
  for (const Piece& piece : pieces()) {
    if (plan.buckets.empty() || plan.buckets.back().elements != piece.elements) {
      const BucketRequest request{.elements = piece.elements};
      plan = joined(plan, plan_until(stop_at(shares.end_of_next(PlanningClock::now())), cluster,
                                     {&request, 1}, plan::Codec{}, may_have_rates));
    } else {
      plan.buckets.push_back(plan.buckets.back());
      plan.buckets.back().tensors = {static_cast<std::uint32_t>(plan.buckets.size() - 1)};
    }
  }
  return plan;
}

/// Each by the candidate that is cheapest for it.
plan::Plan plan_pieces_by_candidates(const topology::Topology& cluster, bool may_have_rates) {
  const auto costs = sim::make_cost_model(cluster, {});
  planner::PlannerOptions options;
  options.codec = plan::Codec{};
  options.route_rates = rates_if(may_have_rates);
  options.stop = stop_at(PlanningClock::now() + kTimeForPieces);
  planner::CandidateSet candidates(cluster, *costs, options);
  candidates.complete();
  plan::Plan plan = empty_plan_of_pieces(cluster);
  std::vector<std::size_t> used;  // by schedule of the plan: its candidate
  for (const Piece& piece : pieces()) {
    const auto choice = candidates.cheapest(piece.elements, planner::is_fp32);
    if (!choice) {
      throw ConfigError("cluster '" + cluster.name() + "': no schedule for an all-reduce");
    }
    auto known = std::find(used.begin(), used.end(), choice->candidate);
    if (known == used.end()) {
      plan.schedules.push_back(candidates.all()[choice->candidate].graph);
      known = used.insert(used.end(), choice->candidate);
    }
    plan::Bucket bucket;
    bucket.tensors = {static_cast<std::uint32_t>(plan.buckets.size())};
    bucket.elements = piece.elements;
    bucket.schedule = static_cast<std::uint32_t>(known - used.begin());
    bucket.slice_elements = choice->slice_elements;
    plan.buckets.push_back(std::move(bucket));
  }
  return plan;
}

}  // namespace

topology::Topology flat_cluster(std::size_t ranks) {
  topology::Topology cluster(fmt::format("{} ranks around a switch", ranks));
  const NodeId hub = cluster.add_node({.name = "switch", .kind = topology::NodeKind::kSwitch});
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::string name = fmt::format("rank{}", r);
    const NodeId node = cluster.add_node(
        {.name = name, .kind = topology::NodeKind::kHost, .host = name, .device_class = "cpu"});
    cluster.add_rank(node);
    cluster.add_duplex_link({.from = node,
                             .to = hub,
                             .bandwidth = 10_Gbps,
                             .latency = Duration(12'500'000),
                             .kind = topology::LinkKind::kHostLink,
                             .tier = "host"});
  }
  return cluster;
}

std::span<const Piece> pieces() {
  static const std::vector<Piece> kAll = make_pieces();
  return kAll;
}

std::vector<std::vector<Part>> cut(std::int64_t elements) {
  std::vector<std::vector<Part>> steps;
  std::int64_t done = 0;
  while (done < elements) {
    auto& parts = steps.emplace_back();
    for (const Piece& piece : pieces()) {
      const std::int64_t left = elements - done;
      const bool is_last = piece.elements == kSmallestPiece;
      if (left > 0 && (left >= piece.elements || is_last)) {
        parts.push_back({piece.bucket, piece.elements, done, std::min(left, piece.elements)});
        done += parts.back().elements;
      }
    }
  }
  return steps;
}

plan::Plan plan_pieces(const topology::Topology& cluster, bool may_have_rates) {
  return cluster.rank_count() <= planner::kMostRanksDividedFinely
             ? plan_pieces_as_buckets(cluster, may_have_rates)
             : plan_pieces_by_candidates(cluster, may_have_rates);
}

plan::Plan plan_buckets(const topology::Topology& cluster, std::span<const BucketRequest> requests,
                        const CodecChoice& codec, bool may_have_rates) {
  return plan_until(stop_at(PlanningClock::now() + kTimeForBuckets), cluster, requests, codec,
                    may_have_rates);
}

plan::Plan plan_buckets_like(const plan::Plan& made, std::span<const BucketRequest> requests) {
  if (made.buckets.empty()) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = fmt::format("plan '{}'", made.name),
                                 .found = "no buckets",
                                 .expected = "at least one"});
  }
  plan::Plan plan = made;
  plan.buckets.clear();
  for (const BucketRequest& request : requests) {
    const auto distance = [&](const plan::Bucket& bucket) {
      return std::abs(
          std::log(static_cast<double>(bucket.elements) / static_cast<double>(request.elements)));
    };
    const auto nearest =
        std::min_element(made.buckets.begin(), made.buckets.end(),
                         [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    plan::Bucket bucket = *nearest;
    bucket.tensors = {static_cast<std::uint32_t>(plan.buckets.size())};
    bucket.elements = request.elements;
    bucket.priority = 0;  // as they are launched
    plan.buckets.push_back(std::move(bucket));
  }
  return plan;
}

plan::Plan joined(const plan::Plan& plan, const plan::Plan& more) {
  plan::Plan result = plan;
  result.error_budget = std::max(plan.error_budget, more.error_budget);
  const auto schedules = static_cast<std::uint32_t>(plan.schedules.size());
  const auto tensors = static_cast<std::uint32_t>(plan.buckets.size());
  result.schedules.insert(result.schedules.end(), more.schedules.begin(), more.schedules.end());
  for (plan::Bucket bucket : more.buckets) {
    bucket.schedule += schedules;
    for (std::uint32_t& tensor : bucket.tensors) {
      tensor += tensors;
    }
    result.buckets.push_back(std::move(bucket));
  }
  return result;
}

}  // namespace rackrail::capi
