// Whole collectives through the interpreter, with every slice an event.
#include <benchmark/benchmark.h>

#include "bench/sim/fabric.hpp"
#include "sim/simulator.hpp"

namespace rackrail::bench {
namespace {

plan::TransferGraph ring(std::size_t ranks) {
  plan::TransferGraph graph("ring", plan::Collective::kAllReduce, ranks,
                            std::vector<std::uint32_t>(ranks, 1));
  const RouteId route = graph.add_route({});
  std::vector<TransferId> last(ranks);
  for (std::size_t step = 0; step < 2 * (ranks - 1); ++step) {
    for (std::size_t chunk = 0; chunk < ranks; ++chunk) {
      const std::span<const TransferId> after(&last[chunk], step == 0 ? 0 : 1);
      last[chunk] = graph.add_transfer(
          {.src = Rank((chunk + step) % ranks),
           .dst = Rank((chunk + step + 1) % ranks),
           .chunk_begin = static_cast<std::uint32_t>(chunk),
           .op = step < ranks - 1 ? plan::TransferOp::kReduce : plan::TransferOp::kCopy,
           .route = route},
          after);
    }
  }
  return graph;
}

/// All-reduce of 1 MiB per rank, one slice per chunk.
void ring_all_reduce(benchmark::State& state) {
  const auto ranks = static_cast<std::size_t>(state.range(0));
  const Fabric fabric(ranks);
  const plan::TransferGraph graph = ring(ranks);
  const auto elements = static_cast<std::int64_t>(ranks) << 18U;
  std::uint64_t flows = 0;
  Duration simulated;
  for (auto _ : state) {
    const auto result = sim::simulate_collective(graph, elements, elements, fabric.topology, {});
    simulated = result.time;
    flows += graph.transfers().size();
  }
  state.counters["flows/s"] =
      benchmark::Counter(static_cast<double>(flows), benchmark::Counter::kIsRate);
  state.counters["simulated ms"] = simulated.seconds() * 1e3;
}
BENCHMARK(ring_all_reduce)->Arg(64)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rackrail::bench
