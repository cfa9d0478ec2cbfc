#include "tests/support/compression_cases.hpp"
#include "planner/tuning/buckets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/batch/batch_space.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::test {

namespace {

topology::Topology random_cluster(std::mt19937_64& random) {
  return slower_cluster("two-racks-40g",
                        std::pow(10.0, std::uniform_real_distribution<double>(-0.3, 1)(random)));
}

plan::Workload random_workload(std::mt19937_64& random, int layers) {
  const auto about = [&](double middle, double factor) {
    return middle * std::pow(factor, std::uniform_real_distribution<double>(-1, 1)(random));
  };
  plan::Workload workload;
  workload.name = "random";
  workload.forward = Duration::from_seconds(about(5e-3, 2));
  workload.optimizer = Duration::from_seconds(about(0.5e-3, 2));
  for (int i = 0; i < layers; ++i) {
    workload.tensors.push_back({fmt::format("layer{}.weight", i),
                                static_cast<std::int64_t>(about(1.5e6, 4)),
                                Duration::from_seconds(about(3e-3, 5))});
  }
  return workload;
}

planner::PlannerOptions options_of(const plan::Workload& workload, Bytes bucket_size,
                                   double error_budget) {
  planner::PlannerOptions options;
  options.error_budget = error_budget;
  options.compare_baselines = false;
  options.bucket_size = bucket_size;
  options.local_batch = workload.profiled_batch;
  return options;
}

}  // namespace

CompressionCase::CompressionCase(topology::Topology topology, plan::Workload workload,
                                 Bytes bucket_size, double error_budget)
    : topology_(std::move(topology)),
      workload_(std::move(workload)),
      options_(options_of(workload_, bucket_size, error_budget)),
      costs_(sim::make_cost_model(topology_, {})),
      candidates_(topology_, *costs_, options_),
      groups_(planner::group_tensors(workload_, bucket_size,
                                     planner::protected_tensors(workload_, true))),
      table_(planner::compression_table(
          groups_, workload_, topology_, planner::BatchSpace(topology_, workload_, {}).fixed(),
          candidates_, planner::ScheduleLoads(candidates_.all(), topology_))),
      timeline_(table_.problem) {}

CompressionCase::CompressionCase(std::uint64_t seed, int layers, double error_budget)
    : CompressionCase(std::mt19937_64(seed), layers, error_budget) {}

CompressionCase::CompressionCase(std::mt19937_64&& random, int layers, double error_budget)
    : CompressionCase{random_cluster(random), random_workload(random, layers), Bytes(1),
                      error_budget} {}

Duration CompressionCase::simulated(const planner::Assignment& assignment, Order order) {
  plan::Plan plan;
  plan.workload_digest = workload_.digest();
  plan.batch = planner::BatchSpace(topology_, workload_, {}).fixed();
  plan.rank_names.resize(topology_.rank_count());
  std::map<std::size_t, std::uint32_t> schedules;
  for (std::size_t b = 0; b < assignment.size(); ++b) {
    const planner::Choice& choice = table_.choices[b][assignment[b]];
    const auto [it, added] =
        schedules.emplace(choice.candidate, static_cast<std::uint32_t>(plan.schedules.size()));
    if (added) {
      plan.schedules.push_back(candidates_.all()[choice.candidate].graph);
    }
    plan::Bucket& bucket = plan.buckets.emplace_back();
    bucket.tensors = groups_[b].tensors;
    bucket.elements = groups_[b].elements;
    bucket.schedule = it->second;
    bucket.slice_elements = choice.slice_elements;
    if (order == Order::kNeeded) {
      bucket.priority = static_cast<std::uint32_t>(assignment.size() - 1 - b);
    }
  }
  return costs_->step(plan, workload_).step_time;
}

Duration CompressionCase::planned(std::optional<plan::Codec> codec) {
  planner::PlannerOptions options = options_;
  options.codec = std::move(codec);
  const plan::Plan plan = planner::make_plan(topology_, workload_, *costs_, options);
  return sim::simulate_step(plan, workload_, topology_, {}).estimate.step_time;
}

topology::Topology slower_cluster(const std::string& name, double slower) {
  topology::Topology topology =
      name == "a100-4x8" ? a100_4x8() : topology::read_cluster(name).topology;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    if (link.bandwidth < Bandwidth(60'000'000'000)) {
      topology.set_link_rate(LinkId(i), scaled(link.bandwidth, 1 / slower), link.latency);
    }
  }
  return topology;
}

CompressionByForce by_force(CompressionCase& one) {
  const planner::Timeline& timeline = one.timeline();
  CompressionByForce found{.best = Duration(INT64_MAX), .uniform = Duration(INT64_MAX)};
  found.planned = one.planned();
  found.fp16 = one.planned(plan::Codec{.kind = plan::CodecKind::kFp16});
  planner::Assignment assignment(timeline.bucket_count(), 0);
  for (bool is_done = false; !is_done;) {
    found.best = std::min(found.best, one.simulated(assignment));
    ++found.assignments;
    std::size_t b = 0;
    while (b < assignment.size() && ++assignment[b] == timeline.option_count(b)) {
      assignment[b++] = 0;
    }
    is_done = b == assignment.size();
  }
  for (const planner::Assignment& start : one.table().starts()) {
    found.uniform = std::min(found.uniform, one.simulated(start));
  }
  found.chosen = one.simulated(planner::search_compression(timeline, one.table().starts()).fastest);
  return found;
}

}  // namespace rackrail::test
