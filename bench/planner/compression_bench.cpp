// Choosing codecs per bucket and tier on 64 GPUs, every tensor a bucket of its own.
//
// Inside the time: making the timeline's problem (what each option occupies) from the collectives'
// times, and the whole search. Outside: making the schedules and simulating the collectives, which
// the planner does once for all searches (reported as "table s", the first time), and judging the
// answer by simulation. Then how near answers are to the optimum where every one can be simulated.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "planner/batch/batch_space.hpp"
#include "planner/compression/compression.hpp"
#include "planner/compression/compression_search.hpp"
#include "planner/tuning/buckets.hpp"
#include "sim/simulator.hpp"
#include "tests/support/compression_cases.hpp"
#include "topology/reader.hpp"

namespace rackrail::bench {
namespace {

/// a100-8x8 with NICs of 25 Gbit/s, where compression matters, and its schedules.
class Cluster {
 public:
  Cluster() : topology_(topology::read_cluster("a100-8x8").topology) {
    for (std::size_t i = 0; i < topology_.link_count(); ++i) {
      const topology::Link& link = topology_.link(LinkId(i));
      if (link.kind == topology::LinkKind::kHostLink) {
        topology_.set_link_rate(LinkId(i), std::min(link.bandwidth, 25_Gbps), link.latency);
      }
    }
    costs_ = sim::make_cost_model(topology_, {});
    candidates_ =
        std::make_unique<planner::CandidateSet>(topology_, *costs_, planner::PlannerOptions{});
    loads_ = std::make_unique<planner::ScheduleLoads>(candidates_->all(), topology_);
  }

  planner::CompressionTable table(const plan::Workload& workload,
                                  const std::vector<planner::TensorGroup>& groups) {
    return planner::compression_table(groups, workload, topology_,
                                      planner::BatchSpace(topology_, workload, {}).fixed(),
                                      *candidates_, *loads_);
  }

 private:
  topology::Topology topology_;
  std::unique_ptr<plan::CostModel> costs_;
  std::unique_ptr<planner::CandidateSet> candidates_;
  std::unique_ptr<planner::ScheduleLoads> loads_;
};

void choose_codecs(benchmark::State& state, const std::string& model) {
  static Cluster cluster;
  const plan::Workload workload = plan::read_workload(model, topology::configs_folder());
  // Buckets of one byte: cut after every tensor.
  const auto groups =
      planner::group_tensors(workload, Bytes(1), planner::protected_tensors(workload, true));
  const auto start = std::chrono::steady_clock::now();
  cluster.table(workload, groups);
  const std::chrono::duration<double> first = std::chrono::steady_clock::now() - start;
  planner::CompressionChoice choice;
  for (auto _ : state) {
    const planner::CompressionTable table = cluster.table(workload, groups);
    choice = planner::search_compression(planner::Timeline(table.problem), table.starts());
  }
  state.counters["buckets"] = static_cast<double>(groups.size());
  state.counters["table s"] = first.count();
  state.counters["step ms"] = choice.step.seconds() * 1e3;
}
BENCHMARK_CAPTURE(choose_codecs, vgg16, "vgg-16")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(choose_codecs, resnet50, "resnet-50")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(choose_codecs, gpt2, "gpt2-124m")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(choose_codecs, bert_large, "bert-large")->Unit(benchmark::kMillisecond);

/// Over random models of so many layers: how near the answers are to the best of all assignments.
void by_force(benchmark::State& state, int layers, std::uint64_t cases, double error_budget) {
  constexpr double kNear = 1.01;
  double assignments = 0;
  double near_by_timeline = 0;
  double near = 0;
  double uniform_near = 0;
  double worst_by_timeline = 0;
  double worst = 0;
  double over_uniform = 0;
  for (auto _ : state) {
    for (std::uint64_t seed = 1; seed <= cases; ++seed) {
      test::CompressionCase one(seed, layers, error_budget);
      const test::CompressionByForce found = test::by_force(one);
      assignments += static_cast<double>(found.assignments);
      near_by_timeline += found.chosen <= scaled(found.best, kNear) ? 1 : 0;
      near += found.planned <= scaled(found.best, kNear) ? 1 : 0;
      uniform_near += found.uniform <= scaled(found.best, kNear) ? 1 : 0;
      worst_by_timeline = std::max(worst_by_timeline, found.chosen / found.best);
      worst = std::max(worst, found.planned / found.best);
      over_uniform = std::max(over_uniform, found.planned / found.uniform);
    }
  }
  state.counters["cases"] = static_cast<double>(cases);
  state.counters["assignments"] = assignments / static_cast<double>(cases);
  state.counters["near by timeline"] = near_by_timeline;
  state.counters["near"] = near;
  state.counters["uniform near"] = uniform_near;
  state.counters["worst by timeline"] = worst_by_timeline;
  state.counters["worst"] = worst;
  state.counters["over uniform"] = over_uniform;
}
constexpr double kUsualError = 0.02;
constexpr double kAnyError = 1;  // what top-k leaves out is up to all of a gradient
#define RACKRAIL_BY_FORCE(name, ...) \
  BENCHMARK_CAPTURE(by_force, name, __VA_ARGS__)->Iterations(1)->Unit(benchmark::kMillisecond)
RACKRAIL_BY_FORCE(layers_4, 4, 500, kUsualError);
RACKRAIL_BY_FORCE(layers_5, 5, 100, kUsualError);
RACKRAIL_BY_FORCE(any_error_layers_4, 4, 100, kAnyError);
#undef RACKRAIL_BY_FORCE

}  // namespace
}  // namespace rackrail::bench
