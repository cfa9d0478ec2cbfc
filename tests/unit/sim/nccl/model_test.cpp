#include "sim/nccl/model.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <string>

#include "base/error.hpp"
#include "sim/nccl/schedules.hpp"
#include "sim/nccl/view.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::sim::nccl::model_test {
namespace {

constexpr std::int64_t kMebi = 1 << 20;

topology::Topology cluster(const std::string& name) {
  return topology::read_cluster(name).topology;
}

SimulationOptions without_sums() {
  plan::DeviceRates rates;
  rates.reduce = Bandwidth(std::int64_t{1} << 50U);
  SimulationOptions options;
  options.device_rates = rates;
  return options;
}

/// A ring of several loops as one graph: a rank begins a loop when its last chunk of the one before
/// has come. `weights` are the sizes of a chunk in each loop, in floats.
plan::TransferGraph ring_loops(std::size_t n, const std::vector<std::uint32_t>& weights) {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t weight : weights) {
    all.insert(all.end(), n, weight);
  }
  plan::TransferGraph graph("ring-loops", plan::Collective::kAllReduce, n, all);
  std::vector<std::optional<TransferId>> ended(n);
  for (std::size_t loop = 0; loop < weights.size(); ++loop) {
    std::vector<TransferId> last(n);
    std::vector<std::optional<TransferId>> ends(n);
    for (std::size_t step = 0; step < 2 * (n - 1); ++step) {
      for (std::size_t chunk = 0; chunk < n; ++chunk) {
        const Rank src((chunk + step) % n);
        const Rank dst((chunk + step + 1) % n);
        std::vector<TransferId> after;
        if (step > 0) {
          after.push_back(last[chunk]);
        } else if (ended[src.index()]) {
          after.push_back(*ended[src.index()]);
        }
        last[chunk] = graph.add_transfer(
            {.src = src,
             .dst = dst,
             .chunk_begin = static_cast<std::uint32_t>(loop * n + chunk),
             .chunk_count = 1,
             .op = step < n - 1 ? plan::TransferOp::kReduce : plan::TransferOp::kCopy,
             .codec = 0,
             .route = {}},
            after);
        ends[dst.index()] = last[chunk];
      }
    }
    ended = ends;
  }
  return graph;
}

double seconds(const Machine& machine, std::int64_t bytes, Algorithm algorithm,
               const Parameters& parameters) {
  return all_reduce(machine, Bytes(bytes), {algorithm, Protocol::kSimple}, parameters)
      .time.seconds();
}

}  // namespace

TEST_CASE("a ring's time is that of all its loops simulated as one graph", "[nccl]") {
  const topology::Topology a100 = cluster("a100-8x8");
  Parameters parameters = usual_parameters();
  parameters.tail_share = 0;
  for (const auto& [nodes, gpus] : {std::pair(1U, 2U), std::pair(1U, 5U), std::pair(2U, 4U)}) {
    CAPTURE(nodes, gpus);
    const Machine machine(a100, nodes, gpus);
    const std::size_t n = machine.rank_count();
    // Three whole loops and a quarter; chunks are whole passes, so bytes count as they are.
    const auto parts = static_cast<std::int64_t>(n) * parameters.channels;
    const std::int64_t bytes = parts * (3 * 2 * kMebi + kMebi / 2);
    const auto whole = static_cast<std::uint32_t>(2 * kMebi / 4 * parameters.channels);
    const topology::Topology view =
        make_view(machine, ring_pairs(nodes), Algorithm::kRing, Protocol::kSimple, parameters);
    double explicit_s = 0;
    {
      const plan::TransferGraph graph = ring_loops(n, {whole, whole, whole});
      explicit_s = simulate_collective(graph, std::int64_t{3} * whole * static_cast<int>(n),
                                       whole / 2, view, without_sums())
                       .time.seconds();
    }
    const double loops_s =
        seconds(machine, parts * 3 * 2 * kMebi, Algorithm::kRing, parameters) - parameters.launch_s;
    // Ranks that end a loop sooner than others begin the next one sooner: of equal hops none does.
    CHECK(loops_s == Approx(explicit_s).epsilon(nodes == 1 ? 1e-6 : 0.02));
    CHECK(seconds(machine, bytes, Algorithm::kRing, parameters) - parameters.launch_s > loops_s);
  }
}

TEST_CASE("a ring in one host takes its closed form", "[nccl]") {
  const topology::Topology a100 = cluster("a100-8x8");
  Parameters parameters = usual_parameters();
  parameters.slice_overhead_s = 0.5e-6;
  for (const std::size_t n : {2U, 3U, 4U, 8U}) {
    CAPTURE(n);
    const Machine machine(a100, 1, n);
    const double rate = 300e9 * parameters.link_efficiency;
    const double bytes = static_cast<double>(n) * 24 * 2 * kMebi;
    const double steps = 2 * (static_cast<double>(n) - 1);
    const double chunk = bytes / static_cast<double>(n);
    const double hop = 3.4e-6 - 2 * parameters.slice_overhead_s;
    const double expected = parameters.launch_s +
                            steps * (chunk / rate + 2 * parameters.slice_overhead_s) + hop +
                            parameters.tail_share * chunk / rate;
    CHECK(seconds(machine, static_cast<std::int64_t>(bytes), Algorithm::kRing, parameters) ==
          Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("long pipelines at the steady rate take what all their loops take", "[nccl]") {
  const topology::Topology h100 = cluster("h100-32x8-rail");
  Parameters parameters = usual_parameters();
  parameters.tail_share = 0;
  for (const std::size_t hosts : {2U, 3U, 5U}) {
    CAPTURE(hosts);
    const Machine machine(h100, hosts, 4);
    constexpr std::int64_t kLoops = 200;
    const std::int64_t loop_bytes = std::int64_t{16} * 4 * 128 * 1024;
    const topology::Topology view =
        make_view(machine, tree_pairs(hosts), Algorithm::kNvlsTree, Protocol::kSimple, parameters);
    const std::int64_t chunk = loop_bytes / 4 / 8;  // floats in each of 2 · 4 chunks
    const double all = simulate_collective(*repeat(nvls_tree_loop(hosts, 4), kLoops),
                                           chunk * 8 * kLoops, chunk, view, without_sums())
                           .time.seconds();
    CHECK(seconds(machine, loop_bytes * kLoops, Algorithm::kNvlsTree, parameters) -
              parameters.launch_s ==
          Approx(all).epsilon(0.01));
  }
}

TEST_CASE("large buffers run at the rate of what binds", "[nccl]") {
  const topology::Topology h100 = cluster("h100-32x8-rail");
  const Parameters parameters = usual_parameters();
  constexpr std::int64_t kBytes = std::int64_t{64} << 30;
  const auto algbw = [&](std::size_t hosts, Algorithm algorithm) {
    return kBytes / seconds(Machine(h100, hosts, 8), kBytes, algorithm, parameters);
  };
  const double port = 450e9 * parameters.link_efficiency;
  const double nic = 8 * 50e9 * parameters.network_efficiency;
  CHECK(algbw(1, Algorithm::kNvls) ==
        Approx(port * parameters.sharp_efficiency * 8 / 9).epsilon(0.02));
  CHECK(algbw(4, Algorithm::kNvlsTree) == Approx(nic / 2).epsilon(0.03));
  CHECK(algbw(4, Algorithm::kRing) < port * 32 / 62);
  CHECK(algbw(1, Algorithm::kTree) == Approx(port / 2).epsilon(0.05));
}

TEST_CASE("NCCL's formula chooses as NCCL is known to", "[nccl]") {
  const topology::Topology a100 = cluster("a100-8x8");
  const topology::Topology h100 = cluster("h100-32x8-rail");
  const auto chosen = [](const Machine& machine, std::int64_t bytes) {
    const Tuned tuned = tune(machine, Bytes(bytes), {});
    return std::string(to_string(tuned.algorithm)) + " " + std::string(to_string(tuned.protocol));
  };
  CHECK(chosen(Machine(a100, 1, 8), 1024 * kMebi) == "ring simple");
  CHECK(chosen(Machine(a100, 8, 8), 1024) == "tree ll");
  CHECK(chosen(Machine(h100, 1, 8), 1024 * kMebi) == "nvls simple");
  CHECK(chosen(Machine(h100, 2, 8), 1024 * kMebi) == "nvls-tree simple");
  CHECK(chosen(Machine(h100, 32, 8), 8192) == "tree ll");
  CHECK_THROWS_AS(tune(Machine(a100, 1, 8), Bytes(kMebi), {Algorithm::kNvls, {}}), ConfigError);
  CHECK_THROWS_AS(tune(Machine(h100, 2, 8), Bytes(kMebi), {Algorithm::kNvls, {}}), ConfigError);
  CHECK_THROWS_AS(Machine(a100, 1, 9), ConfigError);
  CHECK_THROWS_AS(Machine(a100, 9, 8), ConfigError);
  CHECK_THROWS_AS(Machine(a100, 1, 1), ConfigError);
}

TEST_CASE("a slow NIC slows its host's rails, a slow uplink what crosses it", "[nccl]") {
  topology::Topology h100 = cluster("h100-32x8-rail");
  const Parameters parameters = usual_parameters();
  const double before =
      seconds(Machine(h100, 4, 8), 1024 * kMebi, Algorithm::kNvlsTree, parameters);
  const double elsewhere_before = Machine(h100, 4, 8).nic_Bps(0);
  topology::Router router(h100);
  const auto groups = topology::ranks_by_host(h100);
  const topology::Route route = router.route(groups[1].ranks[3], groups[2].ranks[3]);
  for (const LinkId link : route) {
    if (h100.link(link).kind == topology::LinkKind::kHostLink) {
      h100.set_link_rate(link, Bandwidth(h100.link(link).bandwidth.bytes_per_second() / 4),
                         h100.link(link).latency);
      break;
    }
  }
  const Machine degraded(h100, 4, 8);
  CHECK(degraded.nic_Bps(1) == Approx(elsewhere_before / 4));
  CHECK(degraded.nic_Bps(0) == Approx(elsewhere_before));
  CHECK(seconds(degraded, 1024 * kMebi, Algorithm::kNvlsTree, parameters) > 2 * before);

  const topology::Topology tree = cluster("fat-tree-128-2to1");
  const auto hosts = topology::ranks_by_host(tree).size();
  const std::size_t gpus = tree.rank_count() / hosts;
  const std::array<std::size_t, 4> near{0, 1, 2, 3};
  const std::array<std::size_t, 4> far{0, hosts / 2, 1, hosts / 2 + 1};
  const double together =
      seconds(Machine(tree, near, gpus), 64 * kMebi, Algorithm::kRing, parameters);
  const double apart = seconds(Machine(tree, far, gpus), 64 * kMebi, Algorithm::kRing, parameters);
  CHECK(apart >= together);
}

}  // namespace rackrail::sim::nccl::model_test
