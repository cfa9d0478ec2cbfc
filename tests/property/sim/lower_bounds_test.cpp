// No schedule beats its cluster: simulated times of random schedules on random clusters, at both
// levels of the network, against bounds that know nothing of the simulator.
//
// A longer form: RACKRAIL_BOUND_SEEDS=5000 sim_bounds_test.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "plan/alpha_beta.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "sim/simulator.hpp"
#include "tests/property/sim/random_clusters.hpp"
#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim::test::lower_bounds_test {
namespace {

using topology::Topology;

constexpr std::uint64_t kFirstSeed = 20261121;
constexpr std::uint64_t kSeeds = 180;
constexpr double kBytesPerElement = 4;
// Chunks end at whole elements, and the bounds are exact to about 1e-6.
constexpr double kRounding = 1e-5;

std::uint64_t seeds_to_try(std::uint64_t usual) {
  const char* text = std::getenv("RACKRAIL_BOUND_SEEDS");
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

SimulationOptions free_devices(NetworkLevel level) {
  constexpr Bandwidth kFast(1'000'000'000'000'000);
  plan::DeviceRates rates;
  rates.codecs.fill({kFast, kFast});
  rates.reduce = kFast;
  SimulationOptions options;
  options.device_rates = rates;
  options.network = level;
  return options;
}

/// What the longest chain of transfers takes when each goes as a whole, alone, at the rate of its
/// narrowest link: each needs what its sender received before.
double chain_seconds(const plan::TransferGraph& graph, std::int64_t elements, const Topology& t) {
  std::vector<double> start(graph.transfers().size(), 0);
  std::vector<double> end(graph.transfers().size(), 0);
  double longest = 0;
  for (std::size_t i = 0; i < end.size(); ++i) {
    const plan::Transfer& transfer = graph.transfers()[i];
    const std::int64_t size = graph.range(transfer, elements).size();
    if (size == 0) {
      continue;
    }
    for (const TransferId id : graph.dependencies(TransferId(i))) {
      const bool arrives = graph.transfer(id).dst == transfer.src;
      start[i] = std::max(start[i], (arrives ? end : start)[id.index()]);
    }
    const topology::Route& route = graph.routes()[transfer.route.index()];
    end[i] = start[i] + topology::route_latency(t, route).seconds() +
             static_cast<double>(size) * kBytesPerElement /
                 static_cast<double>(topology::route_bandwidth(t, route).bytes_per_second());
    longest = std::max(longest, end[i]);
  }
  return longest;
}

double seconds_per_byte(const Topology& t, plan::Collective what, bool is_in_network) {
  const Bandwidth algbw =
      what == plan::Collective::kAllReduce ? topology::joint_allreduce_bound(t, is_in_network).algbw
      : what == plan::Collective::kAllGather ? topology::allgather_bound(t).algbw
                                             : topology::reducescatter_bound(t).algbw;
  return 1 / static_cast<double>(algbw.bytes_per_second());
}

/// How often the simulator was asked, and how near it came to the bounds at best.
struct Seen {
  std::size_t runs = 0;
  double nearest_topology = 1e9;
  double nearest_schedule = 1e9;
};

/// What is drawn for a family, whichever others there are.
std::uint64_t seed_of(std::uint64_t seed, std::string_view family) {
  std::uint64_t mixed = mix64(seed);
  for (const char letter : family) {
    mixed = mix64(mixed ^ static_cast<unsigned char>(letter));
  }
  return mixed;
}

/// Checks a graph at a level, of a size and in slices that are drawn by `seed`.
void check(const plan::TransferGraph& graph, const Topology& t, double bound_per_byte,
           std::uint64_t seed, std::map<NetworkLevel, Seen>& seen) {
  // A rank has at least an element of each chunk, and the packet level 4 KiB of most.
  const std::int64_t weights = plan::alpha_beta(graph, t).fewest_elements;
  const std::int64_t least = weights * static_cast<std::int64_t>(1 + random_bits(seed, 2) % 64);
  constexpr std::int64_t kMostInPackets = 100'000;  // more take minutes
  const auto level = random_bits(seed, 1) % 2 == 0 || least > kMostInPackets
                         ? NetworkLevel::kFlow
                         : NetworkLevel::kPacket;
  const std::int64_t most = level == NetworkLevel::kFlow ? 64'000'000 : kMostInPackets;
  const std::int64_t elements = std::max(
      least, static_cast<std::int64_t>(random_bits(seed, 3) % static_cast<std::uint64_t>(most)));
  const std::int64_t slices = std::int64_t{1} << (random_bits(seed, 4) % 5 * 2);
  const std::int64_t slice_elements = std::max<std::int64_t>(elements / slices, 1);
  const double bytes = static_cast<double>(elements) * kBytesPerElement;
  const double time =
      simulate_collective(graph, elements, slice_elements, t, free_devices(level)).time.seconds();
  const double bound = bytes * bound_per_byte - topology::longest_burst_time(t).seconds();
  const double schedule = plan::alpha_beta(graph, t).alone_at_least(elements).seconds();
  const bool has_bursts = topology::longest_burst_time(t) > Duration();
  CAPTURE(level == NetworkLevel::kFlow ? "flow" : "packet", elements, slices, time, has_bursts);
  CHECK(time >= bound * (1 - kRounding));
  CHECK(time >= schedule);
  double nearest = std::max(schedule, bound);
  if (slices == 1 && graph.groups().empty() && !has_bursts) {
    const double chain = chain_seconds(graph, elements, t);
    CHECK(time >= chain * (1 - kRounding));
    nearest = std::max(nearest, chain);
  }
  Seen& all = seen[level];
  ++all.runs;
  if (bound <= 0) {
    return;  // all may pass at once
  }
  all.nearest_topology = std::min(all.nearest_topology, time / bound);
  all.nearest_schedule = std::min(all.nearest_schedule, time / nearest);
}

}  // namespace

TEST_CASE("no schedule beats the bound of its cluster or its own at either level") {
  std::map<NetworkLevel, Seen> seen;
  std::map<std::string_view, std::size_t> by_family;
  const std::uint64_t seeds = seeds_to_try(kSeeds);
  for (std::uint64_t seed = kFirstSeed; seed < kFirstSeed + seeds; ++seed) {
    const std::uint64_t draw = random_bits(seed, 0);
    const bool switches_add = draw / 4 % 2 == 0;
    const Topology plain =
        switches_add ? rackrail::test::able(random_cluster(seed),
                                            {topology::NodeKind::kTor, topology::NodeKind::kSpine,
                                             topology::NodeKind::kNvSwitch})
                     : random_cluster(seed);
    // In one of four clusters some links let up to 256 KiB pass at once.
    const auto burst = [seed](LinkId link) {
      constexpr std::uint64_t kMost = 256 << 10;
      const std::uint64_t of_link = mix64(seed + link.value());
      return Bytes(of_link % 3 == 0 ? 0 : static_cast<std::int64_t>(of_link / 3 % kMost));
    };
    const Topology t = draw / 8 % 4 == 0 ? rackrail::test::with_bursts(plain, burst) : plain;
    const auto what = draw % 4 == 0   ? plan::Collective::kAllGather
                      : draw % 4 == 1 ? plan::Collective::kReduceScatter
                                      : plan::Collective::kAllReduce;
    topology::Router router(t);
    const double bound = seconds_per_byte(t, what, false);
    for (const auto& family : planner::schedule_families()) {
      if (family->refusal(t, {})) {
        continue;
      }
      const planner::ScheduleRequest request{t, router, {}};
      std::vector<plan::TransferGraph> graphs;
      if (what == plan::Collective::kAllReduce) {
        graphs = family->all_reduces(request);
      }
      for (const planner::CollectiveForm& form : family->collectives(what, request)) {
        graphs.push_back(form.graph());
      }
      if (graphs.empty()) {
        continue;
      }
      const plan::TransferGraph& graph =
          graphs[random_bits(seed_of(seed, family->name()), 5) % graphs.size()];
      CAPTURE(seed, t.name(), t.rank_count(), switches_add, family->name(), graph.name());
      const bool is_in_network = !graph.groups().empty();
      check(graph, t, is_in_network ? seconds_per_byte(t, what, true) : bound,
            seed_of(seed, family->name()), seen);
      ++by_family[family->name()];
    }
  }
  // Bounds far below all that was simulated would pass whatever the simulator did.
  for (const NetworkLevel level : {NetworkLevel::kFlow, NetworkLevel::kPacket}) {
    CAPTURE(level == NetworkLevel::kFlow ? "flow" : "packet");
    CHECK(seen[level].runs > seeds);
    CHECK(seen[level].nearest_topology < 1.02);
    CHECK(seen[level].nearest_schedule < 1.001);
  }
  for (const auto& family : planner::schedule_families()) {
    CAPTURE(family->name());
    CHECK(by_family[family->name()] > seeds / 25);
  }
}

}  // namespace rackrail::sim::test::lower_bounds_test
