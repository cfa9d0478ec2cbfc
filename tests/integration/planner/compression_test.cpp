// The compression search's model of a step and its choices, against the simulator.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>

#include "base/parse_units.hpp"
#include "planner/batch/batch_space.hpp"
#include "planner/compression.hpp"
#include "planner/compression_search.hpp"
#include "planner/planner.hpp"
#include "planner/protection.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner {
namespace {

/// A shipped cluster (or a100-4x8), with links below 60 GB/s (the network between hosts) slower by
/// a factor.
topology::Topology cluster(const std::string& name, double slower) {
  topology::Topology topology =
      name == "a100-4x8" ? test::a100_4x8() : topology::read_cluster(name).topology;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    if (link.bandwidth < Bandwidth(60'000'000'000)) {
      topology.set_link_rate(LinkId(i), scaled(link.bandwidth, 1 / slower), link.latency);
    }
  }
  return topology;
}

/// One division into buckets on one cluster, ready to be evaluated both ways.
class Situation {
 public:
  Situation(topology::Topology topology, plan::Workload workload, Bytes bucket_size)
      : topology_(std::move(topology)),
        workload_(std::move(workload)),
        costs_(sim::make_cost_model(topology_, {})),
        candidates_(topology_, *costs_, {}),
        groups_(group_tensors(workload_, bucket_size, protected_tensors(workload_, true))),
        table_(compression_table(groups_, workload_, topology_,
                                 BatchSpace(topology_, workload_, {}).fixed(), candidates_,
                                 ScheduleLoads(candidates_.all(), topology_))),
        timeline_(table_.problem) {}

  const CompressionTable& table() const { return table_; }
  const Timeline& timeline() const { return timeline_; }

  Duration simulated(const Assignment& assignment) {
    plan::Plan plan;
    plan.workload_digest = workload_.digest();
    plan.batch = BatchSpace(topology_, workload_, {}).fixed();
    plan.rank_names.resize(topology_.rank_count());
    std::map<std::size_t, std::uint32_t> schedules;
    for (std::size_t b = 0; b < assignment.size(); ++b) {
      const Choice& choice = table_.choices[b][assignment[b]];
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
    }
    return costs_->step(plan, workload_).step_time;
  }

 private:
  topology::Topology topology_;
  plan::Workload workload_;
  std::unique_ptr<plan::CostModel> costs_;
  CandidateSet candidates_;
  std::vector<TensorGroup> groups_;
  CompressionTable table_;
  Timeline timeline_;
};

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

TEST_CASE("the timeline says what the simulator says, within a few percent") {
  struct Shipped {
    const char* cluster;
    const char* model;
    double slower;
    Bytes bucket_size;
  };
  const std::vector<Shipped> cases = {
      {"two-racks-40g", "vgg-16", 1, 25_MiB},     {"two-racks-40g", "vgg-16", 8, 4_MiB},
      {"two-racks-40g", "bert-large", 1, 25_MiB}, {"two-racks-40g", "bert-large", 4, 100_MiB},
      {"two-racks-40g", "gpt2-124m", 8, 4_MiB},   {"two-racks-40g", "resnet-50", 2, 4_MiB},
      {"a100-4x8", "gpt2-124m", 8, 100_MiB}};
  double worst = 0;
  double sum = 0;
  int count = 0;
  for (const Shipped& shipped : cases) {
    CAPTURE(shipped.cluster, shipped.model, shipped.slower, to_string(shipped.bucket_size));
    Situation situation(cluster(shipped.cluster, shipped.slower),
                        plan::read_workload(shipped.model, topology::configs_folder()),
                        shipped.bucket_size);
    std::vector<Assignment> assignments = situation.table().starts();
    assignments.push_back(search_compression(situation.timeline(), assignments).fastest);
    const std::size_t sensible = assignments.size();
    std::mt19937_64 random(7);
    for (int i = 0; i < 3; ++i) {
      Assignment& mixed = assignments.emplace_back();
      for (std::size_t b = 0; b < situation.timeline().bucket_count(); ++b) {
        mixed.push_back(
            static_cast<std::uint32_t>(random() % situation.timeline().option_count(b)));
      }
    }
    for (std::size_t i = 0; i < assignments.size(); ++i) {
      CAPTURE(i);
      const double off =
          situation.timeline().step(assignments[i]) / situation.simulated(assignments[i]) - 1;
      CHECK(std::abs(off) < (i < sensible ? 0.03 : 0.1));
      worst = std::max(worst, std::abs(off));
      sum += std::abs(off);
      ++count;
    }
  }
  CAPTURE(worst, count);
  CHECK(sum / count < 0.01);
}

TEST_CASE("a choice by the timeline is near the best of all by simulation") {
  constexpr std::uint64_t kCases = 20;
  constexpr int kLayers = 4;
  std::uint64_t near = 0;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const double slower = std::pow(10.0, std::uniform_real_distribution<double>(-0.3, 1)(random));
    Situation situation(cluster("two-racks-40g", slower), random_workload(random, kLayers),
                        Bytes(1));  // every tensor a bucket
    const Timeline& timeline = situation.timeline();
    Duration best = Duration(INT64_MAX);
    Assignment assignment(timeline.bucket_count(), 0);
    for (bool is_done = false; !is_done;) {
      best = std::min(best, situation.simulated(assignment));
      std::size_t b = 0;
      while (b < assignment.size() && ++assignment[b] == timeline.option_count(b)) {
        assignment[b++] = 0;
      }
      is_done = b == assignment.size();
    }
    Duration uniform = Duration(INT64_MAX);
    for (const Assignment& start : situation.table().starts()) {
      uniform = std::min(uniform, situation.simulated(start));
    }
    const Duration searched =
        situation.simulated(search_compression(timeline, situation.table().starts()).fastest);
    near += searched <= scaled(best, 1.01) ? 1 : 0;
    // Beside them when the planner judges by simulation, so their model need not be exact.
    CHECK(searched <= scaled(uniform, 1.05));
  }
  CHECK(near >= kCases * 95 / 100);
}

TEST_CASE(
    "a plan is never more than a percent slower than FP16 everywhere, and says what it saves") {
  std::size_t without = 0;
  for (const double slower : {0.01, 0.1, 1.0, 8.0}) {
    CAPTURE(slower);
    const topology::Topology topology = cluster("two-racks-40g", slower);
    const plan::Workload workload = plan::read_workload("vgg-16", topology::configs_folder());
    const auto costs = sim::make_cost_model(topology, {});
    const plan::Plan plan = make_plan(topology, workload, *costs, {});
    PlannerOptions fp16;
    fp16.codec = plan::Codec{.kind = plan::CodecKind::kFp16};
    const plan::Plan everywhere = make_plan(topology, workload, *costs, fp16);
    CHECK(plan.prediction.step_time <= scaled(everywhere.prediction.step_time, 1.01));
    const bool compresses =
        std::any_of(plan.buckets.begin(), plan.buckets.end(),
                    [](const plan::Bucket& bucket) { return bucket.codec.is_lossy(); });
    const auto says_none = std::ranges::find_if(plan.notes, [](const std::string& note) {
      return note.starts_with("compression: fp32 everywhere;") &&
             note.find("fp16 ") != std::string::npos;
    });
    CHECK((says_none != plan.notes.end()) != compresses);
    if (says_none != plan.notes.end()) {
      ++without;
      const double loss = std::stod(says_none->substr(says_none->find("fp16 ") + 5));  // percent
      CAPTURE(*says_none);
      CHECK(loss >= -0.1);
      CHECK(loss / 100 ==
            Approx(everywhere.prediction.step_time / plan.prediction.step_time - 1).margin(0.002));
    }
  }
  CHECK(without >= 1);
}

}  // namespace
}  // namespace rackrail::planner
