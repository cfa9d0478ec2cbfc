// All-reduce in the network: how near the simulated schedule comes to the in-network optimum.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "sim/simulator.hpp"
#include "tests/support/best_collective.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail {
namespace {

using topology::Topology;

constexpr Bytes kData = Bytes(std::int64_t{1} << 30);
constexpr std::int64_t kElements = kData.count() / 4;
constexpr std::int64_t kSlices[] = {1 << 16, 1 << 17, 1 << 18};

/// Seconds of the best all-reduce of a family, over some slices.
double best_seconds(const Topology& topology, std::string_view family,
                    bool is_of_one_size = false) {
  topology::Router router(topology);
  const auto costs = sim::make_cost_model(topology, {});
  double best = 1e300;
  const auto forms =
      planner::collective_forms(planner::schedule_family(family), plan::Collective::kAllReduce,
                                topology, router, {}, {.is_of_one_size = is_of_one_size});
  for (const auto& form : forms) {
    for (const std::int64_t slice : kSlices) {
      best = std::min(best, costs->collective_time(form.graph(), kElements, slice).seconds());
    }
  }
  return best;
}

/// "over": simulated time over the in-network optimum; "gain": of the best of two usual families,
/// as tables of many sizes look at them, over it.
void report(benchmark::State& state, const Topology& topology, double seconds) {
  const auto optimum =
      static_cast<double>(topology::joint_allreduce_bound(topology, true).algbw.bytes_per_second());
  double usual = best_seconds(topology, "ring");
  if (!planner::schedule_family("hierarchical").refusal(topology, {})) {
    usual = std::min(usual, best_seconds(topology, "hierarchical"));
  }
  state.counters["ranks"] = static_cast<double>(topology.rank_count());
  state.counters["over"] = seconds * optimum / static_cast<double>(kData.count());
  state.counters["gain"] = usual / seconds;
}

void in_network(benchmark::State& state, const Topology& topology) {
  double seconds = 0;
  for (auto _ : state) {
    seconds = best_seconds(topology, "in-network", true);
  }
  report(state, topology, seconds);
}

/// Divided as finely as is best: packed trees have many forms.
void in_network_divided(benchmark::State& state, const Topology& topology) {
  double seconds = 0;
  for (auto _ : state) {
    seconds = test::best_collective(topology, plan::Collective::kAllReduce, kElements, "in-network")
                  .time.seconds();
  }
  report(state, topology, seconds);
}

using topology::NodeKind;

Topology nvswitches(Topology topology) {
  return test::able(std::move(topology), {NodeKind::kNvSwitch});
}
Topology all_switches(Topology topology) {
  return test::able(std::move(topology), {NodeKind::kNvSwitch, NodeKind::kTor, NodeKind::kSpine});
}

#define RACKRAIL_IN_NETWORK(name, topology) \
  BENCHMARK_CAPTURE(in_network, name, topology)->Iterations(1)->Unit(benchmark::kMillisecond)
RACKRAIL_IN_NETWORK(box_8, nvswitches(test::boxes(1, 8)));
RACKRAIL_IN_NETWORK(rails_16_nvswitch, nvswitches(test::boxes(2, 8)));
RACKRAIL_IN_NETWORK(rails_32_nvswitch, nvswitches(test::boxes(4, 8)));
RACKRAIL_IN_NETWORK(rails_64_all, all_switches(test::boxes(8, 8)));
RACKRAIL_IN_NETWORK(boxes_32_all, all_switches(test::boxes(4, 2)));
RACKRAIL_IN_NETWORK(clos_16, all_switches(test::clos({4, 4, 4, 4}, 4)));
RACKRAIL_IN_NETWORK(clos_16_2to1, all_switches(test::clos({4, 4, 4, 4}, 2)));
RACKRAIL_IN_NETWORK(uneven_clos_12, all_switches(test::clos({2, 4, 6}, 2)));
RACKRAIL_IN_NETWORK(h100_256, topology::read_cluster("h100-32x8-rail").topology);
RACKRAIL_IN_NETWORK(h100_1024, test::h100_128x8());
#undef RACKRAIL_IN_NETWORK

#define RACKRAIL_IN_NETWORK_DIVIDED(name)                                 \
  BENCHMARK_CAPTURE(in_network_divided, name, all_switches(test::name())) \
      ->Name("in_network/" #name)                                         \
      ->Iterations(1)                                                     \
      ->Unit(benchmark::kMillisecond)
RACKRAIL_IN_NETWORK_DIVIDED(clos_of_unlike_spines);
RACKRAIL_IN_NETWORK_DIVIDED(clos_with_lost_cables);
RACKRAIL_IN_NETWORK_DIVIDED(clos_with_slow_cables);
RACKRAIL_IN_NETWORK_DIVIDED(clos_of_unlike_racks);
RACKRAIL_IN_NETWORK_DIVIDED(nics_by_gpu);
RACKRAIL_IN_NETWORK_DIVIDED(uneven_hosts);
RACKRAIL_IN_NETWORK_DIVIDED(missing_nics);
RACKRAIL_IN_NETWORK_DIVIDED(rails_with_lost_cable);
#undef RACKRAIL_IN_NETWORK_DIVIDED

}  // namespace
}  // namespace rackrail
