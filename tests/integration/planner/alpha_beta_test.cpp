// The α–β model against the simulator and against closed forms of the classical schedules.
#include "plan/alpha_beta.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "plan/empty_plan.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/planner.hpp"
#include "sim/burst_bound.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/free_devices.hpp"
#include "topology/queries.hpp"

namespace rackrail::alpha_beta_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr Duration kLatency = 2_us;  // of a link
constexpr Bandwidth kRate(10'000'000'000);

// Racks of hosts; the host of rank r under rack r % racks, so that no order is by accident right.
Topology cluster(std::size_t ranks, std::size_t racks, Bandwidth uplink) {
  Topology topology("cluster");
  const NodeId core = topology.add_node({.name = "core", .kind = NodeKind::kCore});
  std::vector<NodeId> tors;
  for (std::size_t r = 0; r < racks; ++r) {
    tors.push_back(topology.add_node({.name = fmt::format("tor{}", r), .kind = NodeKind::kTor}));
    topology.add_duplex_link(
        {.from = tors.back(), .to = core, .bandwidth = uplink, .latency = kLatency});
  }
  for (std::size_t h = 0; h < ranks; ++h) {
    const std::string name = fmt::format("host{}", h);
    const NodeId host = topology.add_node({.name = name,
                                           .kind = NodeKind::kHost,
                                           .host = name,
                                           .rack = fmt::format("rack{}", h % racks)});
    topology.add_rank(host);
    topology.add_duplex_link(
        {.from = host, .to = tors[h % racks], .bandwidth = kRate, .latency = kLatency});
  }
  return topology;
}

sim::SimulationOptions network_only() {
  sim::SimulationOptions options;
  options.device_rates = test::free_devices();
  return options;
}

TEST_CASE("bursts make one collective faster, and many in a row no faster than links are") {
  const Topology plain = cluster(4, 2, 1_GBps);
  const Topology bursty = test::with_bursts(plain, [](LinkId) { return 1_MiB; });
  const auto costs = sim::make_cost_model(bursty, network_only());
  topology::Router router(bursty);
  for (const auto& family : planner::schedule_families()) {
    if (family->refusal(bursty, {})) {
      continue;
    }
    const plan::TransferGraph graph = family->all_reduce({bursty, router, {}});
    const plan::AlphaBeta model = plan::alpha_beta(graph, bursty);
    const auto alone = [&](const Topology& topology, std::int64_t elements) {
      return sim::simulate_collective(graph, elements, elements, topology, network_only()).time;
    };
    const auto with_connections = [](Duration time) { return scaled(time, 1.0051); };
    // Where links decide, something for each message.
    const auto with_messages = [&](Duration least) {
      return with_connections(scaled(least, 1.02));
    };
    const auto busiest_has_many_bursts = [&](std::int64_t elements) {
      const auto loads = plan::link_loads(graph, bursty);
      const auto busiest = std::max_element(
          loads.begin(), loads.end(), [&](const plan::LinkLoad& one, const plan::LinkLoad& other) {
            return one.at_least(elements) < other.at_least(elements);
          });
      return busiest->at_least(elements) >= scaled(busiest->burst, 8);
    };
    CAPTURE(family->name());
    for (const std::int64_t elements : {10'000, 100'000, 10'000'000}) {
      const Duration one = alone(bursty, elements);
      CHECK(one < alone(plain, elements));
      CHECK(one >= model.alone_at_least(elements));
      const Duration cost = costs->collective_time(graph, elements, elements);
      if (busiest_has_many_bursts(elements)) {
        // So many bursts that they are left out; something for each connection.
        CHECK(cost >= alone(plain, elements));
        CHECK(cost <= with_connections(alone(plain, elements)));
      } else {
        CHECK(cost >= std::max(one, model.at_least(elements)));
        CHECK(cost <= std::max(with_connections(one), with_messages(model.at_least(elements))));
      }
      CHECK(cost <= with_messages(alone(plain, elements)));
    }
    CHECK(costs->collective_time(graph, 100'000, 100'000) >= model.at_least(100'000));
    CHECK(costs->collective_time(graph, 100'000, 100'000) <=
          with_messages(model.at_least(100'000)));
  }
}

TEST_CASE("of steps that links with bursts hold to one time, that of fewer messages is shorter") {
  const Topology bursty = test::with_bursts(cluster(4, 2, 1_GBps), [](LinkId) { return 1_MiB; });
  topology::Router router(bursty);
  constexpr std::int64_t kElements = 100'000;
  plan::Workload workload;
  workload.tensors.push_back({.name = "all", .elements = kElements});
  plan::Plan plan = plan::empty_plan(bursty);
  plan.workload_digest = workload.digest();
  plan.schedules.push_back(
      planner::schedule_family("halving-doubling").all_reduce({bursty, router, {}}));
  plan.buckets.push_back(
      {.tensors = {0}, .elements = kElements, .schedule = 0, .slice_elements = kElements});
  const auto costs = sim::make_cost_model(bursty, network_only());
  const Duration whole = costs->step(plan, workload).step_time;
  plan.buckets.front().slice_elements = 1000;
  const Duration sliced = costs->step(plan, workload).step_time;
  plan.buckets.front().slice_elements = 500;
  const Duration finer = costs->step(plan, workload).step_time;
  const Duration least = plan::alpha_beta(plan.schedules.front(), bursty).at_least(kElements);
  CHECK(whole > least);
  CHECK(sliced > whole);
  CHECK(finer > sliced);
  CHECK(finer <= scaled(least, 1.02 * 1.0051));
}

TEST_CASE("one message at a time finds the bursts of its links full, however long it is") {
  const Topology plain = cluster(2, 1, 1_GBps);
  const Topology bursty = test::with_bursts(plain, [](LinkId) { return 64_KiB; });
  topology::Router router(bursty);
  plan::TransferGraph graph("there and back", plan::Collective::kAllReduce, 2, {1});
  const TransferId there =
      graph.add_transfer({.src = Rank(0),
                          .dst = Rank(1),
                          .op = plan::TransferOp::kReduce,
                          .route = graph.add_route(router.route(Rank(0), Rank(1)))},
                         {});
  graph.add_transfer({.src = Rank(1),
                      .dst = Rank(0),
                      .op = plan::TransferOp::kCopy,
                      .route = graph.add_route(router.route(Rank(1), Rank(0)))},
                     {&there, 1});
  constexpr std::int64_t kElements = 1'000'000;
  const auto alone = [&](const Topology& topology, std::int64_t slice) {
    return sim::simulate_collective(graph, kElements, slice, topology, network_only()).time;
  };
  const auto costs = sim::make_cost_model(bursty, network_only());
  const Duration whole = costs->collective_time(graph, kElements, kElements);
  CHECK(whole / alone(bursty, kElements) - 1 == Approx(sim::kMostOfConnections).epsilon(0.001));
  CHECK(whole < scaled(alone(plain, kElements), 0.99));
  // In slices both directions are busy at once, and no pause is left.
  constexpr std::int64_t kSlice = kElements / 10;
  const Duration sliced = costs->collective_time(graph, kElements, kSlice);
  CHECK(sliced / alone(plain, kSlice) - 1 == Approx(sim::kMostOfConnections).epsilon(0.001));
}

TEST_CASE(
    "of collectives that take the same over many bursts, that of fewer connections is shorter") {
  constexpr int kRanks = 8;
  const Topology plain = cluster(kRanks, 2, 1_GBps);
  const Topology bursty = test::with_bursts(plain, [](LinkId) { return 64_KiB; });
  topology::Router router(bursty);
  const auto costs = sim::make_cost_model(bursty, network_only());
  const auto added = [&](const char* family) {
    constexpr std::int64_t kElements = 10'000'000;
    const plan::TransferGraph graph =
        planner::schedule_family(family).all_reduce({bursty, router, {}});
    const Duration alone =
        sim::simulate_collective(graph, kElements, kElements, plain, network_only()).time;
    return costs->collective_time(graph, kElements, kElements) / alone - 1;
  };
  CHECK(added("ring") == Approx(sim::kMostOfConnections / (kRanks - 1)).epsilon(0.001));
  CHECK(added("halving-doubling") ==  // three of the seven others
        Approx(sim::kMostOfConnections * 3 / (kRanks - 1)).epsilon(0.001));
  CHECK(added("parameter-server") == Approx(sim::kMostOfConnections).epsilon(0.001));  // all to all
}

TEST_CASE("a plan predicts what its step takes, not what plans were compared by") {
  const Topology bursty = test::with_bursts(cluster(8, 2, 1_GBps), [](LinkId) { return 64_KiB; });
  plan::Workload workload;
  workload.name = "one";
  workload.profiled_batch = 1;
  workload.tensors.push_back({.name = "all", .elements = 10'000'000});
  const auto costs = sim::make_cost_model(bursty, network_only());
  planner::PlannerOptions options;
  options.codec = plan::Codec{};
  const plan::Plan plan = planner::make_plan(bursty, workload, *costs, options);
  const Duration step =
      sim::simulate_step(plan, workload, bursty, network_only()).estimate.step_time;
  CHECK(costs->preference(plan) > 0);
  CHECK(costs->step(plan, workload).step_time > scaled(step, 1 + costs->preference(plan) / 2));
  CHECK(plan.prediction.step_time / step == Approx(1).margin(1e-9));
}

TEST_CASE("no simulation is faster than the model of its schedule says") {
  const auto [ranks, racks] = GENERATE(std::pair{2, 1}, std::pair{5, 2}, std::pair{8, 2},
                                       std::pair{9, 3}, std::pair{16, 4});
  const Bandwidth uplink = GENERATE(100_GBps, 8_GBps);
  const Topology topology =
      cluster(static_cast<std::size_t>(ranks), static_cast<std::size_t>(racks), uplink);
  topology::Router router(topology);
  std::size_t checked = 0;
  for (const auto& family : planner::schedule_families()) {
    for (const plan::Codec& codec : plan::known_codecs()) {
      const planner::TierCodecs codecs{codec, codec};
      if (family->refusal(topology, codecs)) {
        continue;
      }
      const plan::TransferGraph graph = family->all_reduce({topology, router, codecs});
      const plan::AlphaBeta model = plan::alpha_beta(graph, topology);
      for (const std::int64_t elements : {1, 100, 12'345, 1'000'000, 10'000'000}) {
        CAPTURE(ranks, racks, family->name(), plan::to_string(codec), elements);
        const auto result = sim::simulate_collective(graph, elements, 1 << 18, topology, {});
        CHECK(model.at_least(elements) <= result.time);
        CHECK(result.time > Duration());
        ++checked;
      }
    }
  }
  CHECK(checked >= 40);
}

struct ClosedForm {
  const char* family;
  double latencies;  // of a route
  double buffers;    // sent and received by the busiest rank
};

TEST_CASE("over one switch, classical schedules take what their closed forms say") {
  const auto n = GENERATE(2, 4, 8, 16);
  const double ranks = n;
  const double rounds = std::log2(ranks);
  // Thakur, Rabenseifner, Gropp 2005, tables 1 and 2.
  const ClosedForm form =
      GENERATE_COPY(ClosedForm{"ring", 2 * (ranks - 1), 2 * (ranks - 1) / ranks},
                    ClosedForm{"halving-doubling", 2 * rounds, 2 * (ranks - 1) / ranks});
  const Topology topology = cluster(static_cast<std::size_t>(n), 1, 100_GBps);
  topology::Router router(topology);
  const plan::TransferGraph graph =
      planner::schedule_family(form.family).all_reduce({topology, router, {}});
  for (const std::int64_t elements : {16, 1 << 14, 1 << 20, 1 << 26}) {
    CAPTURE(n, form.family, elements);
    const double bytes = 4.0 * static_cast<double>(elements);
    const double expected = form.latencies * (2 * kLatency).seconds() +
                            form.buffers * bytes / static_cast<double>(kRate.bytes_per_second());
    const auto result =
        sim::simulate_collective(graph, elements, elements, topology, network_only());
    CHECK(result.time.seconds() == Approx(expected).epsilon(0.02));
    const double bound =
        bytes / static_cast<double>(topology::allreduce_bound(topology).algbw.bytes_per_second());
    CHECK(result.time.seconds() >= bound * (1 - 1e-9));
  }
}

// Everyone sends a chunk of its own to everyone else, all at once.
plan::TransferGraph all_to_all(std::size_t n) {
  plan::TransferGraph graph("all-to-all", plan::Collective::kAllGather, n,
                            std::vector<std::uint32_t>(n * n, 1));
  const RouteId route = graph.add_route({});
  for (std::size_t src = 0; src < n; ++src) {
    for (std::size_t dst = 0; dst < n; ++dst) {
      if (src != dst) {
        graph.add_transfer({.src = Rank(src),
                            .dst = Rank(dst),
                            .chunk_begin = static_cast<std::uint32_t>(src * n + dst),
                            .route = route},
                           {});
      }
    }
  }
  return graph;
}

TEST_CASE("a direct all-to-all takes what the ports of its ranks need") {
  const auto n = static_cast<std::size_t>(GENERATE(2, 5, 16, 32));
  const Topology topology = cluster(n, 1, 100_GBps);
  // n² chunks of m floats: each rank sends and receives n − 1 of them.
  for (const std::int64_t m : {1 << 8, 1 << 14, 1 << 20}) {
    CAPTURE(n, m);
    const auto ranks = static_cast<std::int64_t>(n);
    const double port =
        4.0 * static_cast<double>((ranks - 1) * m) / static_cast<double>(kRate.bytes_per_second());
    const auto result =
        sim::simulate_collective(all_to_all(n), ranks * ranks * m, m, topology, network_only());
    CHECK(result.time.seconds() == Approx((2 * kLatency).seconds() + port).epsilon(0.02));
    CHECK(result.time.seconds() >= port);
  }
}

TEST_CASE("a binomial broadcast takes a message and a latency for each of its rounds") {
  const auto rounds = GENERATE(1, 2, 3, 5);
  const std::size_t n = std::size_t{1} << static_cast<unsigned>(rounds);
  const Topology topology = cluster(n, 1, 100_GBps);
  plan::TransferGraph graph("broadcast", plan::Collective::kAllGather, n, {1});
  const RouteId route = graph.add_route({});
  std::vector<std::vector<TransferId>> last(n);  // to or from each rank
  for (std::size_t reached = 1; reached < n; reached *= 2) {
    for (std::size_t src = 0; src < reached; ++src) {
      const TransferId id = graph.add_transfer(
          {.src = Rank(src), .dst = Rank(src + reached), .route = route}, last[src]);
      last[src] = {id};
      last[src + reached] = {id};
    }
  }
  for (const std::int64_t elements : {1 << 6, 1 << 14, 1 << 22}) {
    CAPTURE(n, elements);
    const double message =
        4.0 * static_cast<double>(elements) / static_cast<double>(kRate.bytes_per_second());
    const double expected = rounds * (message + (2 * kLatency).seconds());
    const auto result =
        sim::simulate_collective(graph, elements, elements, topology, network_only());
    CHECK(result.time.seconds() == Approx(expected).epsilon(0.02));
  }
}

TEST_CASE("a ring over a ring of cables costs what a ring costs") {
  const auto n = static_cast<std::size_t>(GENERATE(3, 4, 9, 16));
  Topology topology("torus of one dimension");
  std::vector<NodeId> hosts;
  for (std::size_t h = 0; h < n; ++h) {
    const std::string name = fmt::format("host{}", h);
    hosts.push_back(topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name}));
    topology.add_rank(hosts.back());
  }
  for (std::size_t h = 0; h < n; ++h) {
    topology.add_duplex_link(
        {.from = hosts[h], .to = hosts[(h + 1) % n], .bandwidth = kRate, .latency = kLatency});
  }
  topology::Router router(topology);
  const plan::TransferGraph graph =
      planner::schedule_family("ring").all_reduce({topology, router, {}});
  for (const std::int64_t elements : {1 << 10, 1 << 18, 1 << 25}) {
    CAPTURE(n, elements);
    const auto ranks = static_cast<double>(n);
    const double bytes = 4.0 * static_cast<double>(elements);
    const double expected =
        2 * (ranks - 1) *
        (kLatency.seconds() + bytes / ranks / static_cast<double>(kRate.bytes_per_second()));
    const auto result =
        sim::simulate_collective(graph, elements, elements, topology, network_only());
    CHECK(result.time.seconds() == Approx(expected).epsilon(0.02));
  }
}

}  // namespace
}  // namespace rackrail::alpha_beta_test
