// Choosing codecs per bucket and tier on 64 GPUs, every tensor a bucket of its own.
//
// Inside the time: making the timeline's problem (what each option occupies) from the collectives'
// times, and the whole search. Outside: making the schedules and simulating the collectives, which
// the planner does once for all searches (reported as "table s", the first time), and judging the
// answer by simulation.
#include <benchmark/benchmark.h>

#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "planner/batch/batch_space.hpp"
#include "planner/compression.hpp"
#include "planner/compression_search.hpp"
#include "planner/protection.hpp"
#include "sim/simulator.hpp"
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
  state.counters["above bound %"] = (choice.step / choice.bound - 1) * 100;
}
BENCHMARK_CAPTURE(choose_codecs, vgg16, "vgg-16")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(choose_codecs, resnet50, "resnet-50")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(choose_codecs, gpt2, "gpt2-124m")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(choose_codecs, bert_large, "bert-large")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rackrail::bench
