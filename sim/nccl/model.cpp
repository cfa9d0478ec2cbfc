#include "sim/nccl/model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "sim/nccl/schedules.hpp"
#include "sim/nccl/view.hpp"
#include "sim/simulator.hpp"

namespace rackrail::sim::nccl {

namespace {

constexpr std::int64_t kBytesPerElement = 4;

/// Sums are part of NCCL's copies, so they take no time of their own.
SimulationOptions simulation() {
  plan::DeviceRates rates;
  rates.reduce = Bandwidth(std::int64_t{1} << 50U);
  SimulationOptions options;
  options.device_rates = rates;
  options.record_critical_path = false;
  return options;
}

std::int64_t elements_of(double bytes) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::llround(bytes / static_cast<double>(kBytesPerElement))));
}

struct Sum {
  double seconds = 0;
  std::uint64_t flows = 0;
};

Sum ring(const Machine& machine, Bytes size, Protocol protocol, const Parameters& parameters) {
  const std::size_t n = machine.rank_count();
  const topology::Topology view = make_view(machine, ring_pairs(machine.hosts().size()),
                                            Algorithm::kRing, protocol, parameters);
  std::vector<Rank> order;
  for (std::size_t r = 0; r < n; ++r) {
    order.emplace_back(r);
  }
  const auto schedule = plan::make_ring_schedule(std::move(order));
  const Chunking chunking = ring_chunking(size.count(), n, parameters.channels, protocol);
  const double port = port_payload_Bps(machine.port_Bps(), machine.gpus_per_node(),
                                       Algorithm::kRing, protocol, parameters);
  Sum sum;
  const auto add_loops = [&](std::int64_t loops, std::int64_t chunk_bytes) {
    const std::int64_t slice = (chunk_bytes + chunking.slices - 1) / chunking.slices;
    const double moved = block_bytes(slice, parameters.pass_share, protocol) * parameters.channels;
    const std::int64_t slice_elements = elements_of(moved);
    const CollectiveResult loop = simulate_collective(
        *schedule, slice_elements * chunking.slices * static_cast<std::int64_t>(n), slice_elements,
        view, simulation());
    const double tail = parameters.tail_share * moved * chunking.slices / port;
    sum.seconds += static_cast<double>(loops) * (loop.time.seconds() + tail);
    sum.flows += loop.flows;
  };
  add_loops(chunking.loops, chunking.chunk_bytes);
  if (chunking.rest_bytes > 0) {
    add_loops(1, chunking.rest_bytes);
  }
  return sum;
}

Sum pipeline(const Machine& machine, Bytes size, Algorithm algorithm, Protocol protocol,
             const Parameters& parameters) {
  const std::size_t hosts = machine.hosts().size();
  const std::size_t gpus = machine.gpus_per_node();
  const topology::Topology view =
      make_view(machine, tree_pairs(hosts), algorithm, protocol, parameters);
  const bool is_tree = algorithm == Algorithm::kTree;
  const std::int64_t parts =
      is_tree ? parameters.channels : parameters.nvls_channels * static_cast<std::int64_t>(gpus);
  const Chunking chunking = tree_chunking(size.count(), parts, hosts, gpus, algorithm, protocol,
                                          parameters.nvls_tree_chunk);
  const plan::TransferGraph loop = is_tree                         ? tree_loop(hosts, gpus)
                                   : algorithm == Algorithm::kNvls ? nvls_loop(gpus)
                                                                   : nvls_tree_loop(hosts, gpus);
  // NVLS's loads and stores go through the switch, not in passes from buffer to buffer.
  const double block = is_tree ? block_bytes(chunking.chunk_bytes, parameters.pass_share, protocol)
                               : static_cast<double>(chunking.chunk_bytes);
  const auto chunks = static_cast<std::int64_t>(loop.chunk_count());
  const std::int64_t chunk_elements =
      elements_of(block * static_cast<double>(parts) / static_cast<double>(chunks));
  Sum sum;
  if (!is_tree) {
    // Each GPU copies the first loop into buffers that the switch can reach, and the last one out
    // of them; all other copies overlap.
    const double port =
        port_payload_Bps(machine.port_Bps(), gpus, Algorithm::kRing, protocol, parameters);
    sum.seconds += 2 * parameters.tail_share * block * static_cast<double>(parts) / port;
  }
  const auto simulate = [&](std::uint32_t loops) {
    const CollectiveResult result = simulate_collective(
        *repeat(loop, loops), chunk_elements * chunks * loops, chunk_elements, view, simulation());
    sum.flows += result.flows;
    return result.time.seconds();
  };
  if (chunking.loops <= kLoopsSimulated) {
    sum.seconds += simulate(static_cast<std::uint32_t>(chunking.loops));
    return sum;
  }
  const double half = simulate(kLoopsSimulated / 2);
  const double full = simulate(kLoopsSimulated);
  const auto more = static_cast<double>(chunking.loops - kLoopsSimulated);
  sum.seconds += full + more * (full - half) / (kLoopsSimulated / 2);
  return sum;
}

}  // namespace

Prediction all_reduce(const Machine& machine, Bytes size, const Choice& choice,
                      const Parameters& parameters) {
  if (size.count() < kBytesPerElement) {
    throw ConfigError(
        ErrorContext{"", "all-reduce", rackrail::to_string(size), "at least one float (4 B)"});
  }
  const Tuned tuned = tune(machine, size, choice);
  const Sum sum = tuned.algorithm == Algorithm::kRing
                      ? ring(machine, size, tuned.protocol, parameters)
                      : pipeline(machine, size, tuned.algorithm, tuned.protocol, parameters);
  // `launch` is that of Simple; NCCL's table says how the other protocols differ.
  const double start = parameters.launch_s + base_latency_s(tuned.algorithm, tuned.protocol) -
                       base_latency_s(tuned.algorithm, Protocol::kSimple);
  return {Duration::from_seconds(std::max(0.0, start) + sum.seconds), tuned.algorithm,
          tuned.protocol, sum.flows};
}

}  // namespace rackrail::sim::nccl
