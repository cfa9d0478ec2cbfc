// Whole collectives through the interpreter, with every slice an event.
#include <benchmark/benchmark.h>

#include <memory>

#include "bench/sim/fabric.hpp"
#include "plan/regular_schedule.hpp"
#include "sim/simulator.hpp"

namespace rackrail::bench {
namespace {

std::unique_ptr<plan::RegularSchedule> ring(std::size_t ranks) {
  std::vector<Rank> order;
  for (std::size_t r = 0; r < ranks; ++r) {
    order.emplace_back(r);
  }
  return plan::make_ring_schedule(std::move(order));
}

void report(benchmark::State& state, const sim::CollectiveResult& result) {
  state.counters["flows/s"] = benchmark::Counter(static_cast<double>(result.flows),
                                                 benchmark::Counter::kIsIterationInvariantRate);
  state.counters["flows"] = static_cast<double>(result.flows);
  state.counters["simulated ms"] = result.time.seconds() * 1e3;
}

/// All-reduce of 1 MiB per rank, one slice per chunk, transfers computed as they are needed; every
/// flow simulated, or one part of those that are alike.
void ring_all_reduce(benchmark::State& state, bool use_symmetry) {
  const auto ranks = static_cast<std::size_t>(state.range(0));
  const Fabric fabric(ranks);
  const auto schedule = ring(ranks);
  const auto elements = static_cast<std::int64_t>(ranks) << 18U;
  sim::CollectiveResult result;
  for (auto _ : state) {
    result = sim::simulate_collective(*schedule, elements, elements, fabric.topology,
                                      {.use_symmetry = use_symmetry});
  }
  report(state, result);
}
BENCHMARK_CAPTURE(ring_all_reduce, every_flow, false)
    ->Arg(64)
    ->Arg(256)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(ring_all_reduce, folded, true)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond);

/// All-reduce of 4 GiB per rank inside hosts of eight and in eight rings between them.
void hierarchical_ring_all_reduce(benchmark::State& state, bool use_symmetry) {
  constexpr std::size_t kGpus = 8;
  const auto ranks = static_cast<std::size_t>(state.range(0));
  const topology::Topology topology = rail_fabric(ranks / kGpus);
  std::vector<std::vector<Rank>> groups(ranks / kGpus);
  for (std::size_t r = 0; r < ranks; ++r) {
    groups[r / kGpus].emplace_back(r);
  }
  const auto schedule = plan::make_hierarchical_ring_schedule(std::move(groups));
  constexpr std::int64_t kElements = std::int64_t{1} << 30U;
  sim::CollectiveResult result;
  for (auto _ : state) {
    result = sim::simulate_collective(*schedule, kElements, kElements, topology,
                                      {.use_symmetry = use_symmetry});
  }
  report(state, result);
}
BENCHMARK_CAPTURE(hierarchical_ring_all_reduce, every_flow, false)
    ->Arg(1024)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hierarchical_ring_all_reduce, folded, true)
    ->Arg(1024)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rackrail::bench
