#include "tests/integration/sim/flow_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>

#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "sim/max_min_network.hpp"
#include "sim/packet_network.hpp"
#include "sim/simulator.hpp"
#include "tests/support/paths.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::sim::test {

namespace {

constexpr double kSecond = 1e12;
constexpr std::int64_t kSliceElements = 1 << 18;  // 1 MiB
constexpr double kPercent = 100;

Outcome run(NetworkModel& network, const Flows& flows) {
  Outcome outcome;
  outcome.completions.resize(flows.routes.size());
  for (std::size_t f = 0; f < flows.routes.size(); ++f) {
    network.start(0, flows.bytes.count(), flows.routes[f], 0, static_cast<FlowTag>(f));
  }
  std::vector<FlowEvent> events;
  for (Time now = network.next_event(0); now >= 0; now = network.next_event(now)) {
    events.clear();
    network.take_events(now, events);
    for (const FlowEvent& event : events) {
      if (event.is_delivered) {
        outcome.completions[event.tag] = static_cast<double>(now) / kSecond;
      }
    }
  }
  outcome.makespan = *std::max_element(outcome.completions.begin(), outcome.completions.end());
  outcome.mean_completion =
      std::accumulate(outcome.completions.begin(), outcome.completions.end(), 0.0) /
      static_cast<double>(flows.routes.size());
  outcome.queues = network.queues();
  return outcome;
}

/// 0, 1, … n - 1 in random order.
std::vector<std::size_t> shuffled(std::size_t n, unsigned seed) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(seed);
  for (std::size_t i = n - 1; i > 0; --i) {
    std::swap(order[i], order[random() % (i + 1)]);
  }
  return order;
}

/// Devices that take no time.
plan::DeviceRates free_devices() {
  constexpr Bandwidth kFast(1'000'000'000'000'000);
  plan::DeviceRates rates;
  rates.codecs.fill({kFast, kFast});
  rates.reduce = kFast;
  return rates;
}

/// A step that does nothing but this collective: of a step, the simulator says when each message
/// started and was delivered.
Outcome simulate(const plan::TransferGraph& graph, Bytes bytes, const topology::Topology& topology,
                 NetworkLevel level, const PacketOptions& packets) {
  SimulationOptions options;
  options.packets = packets;
  options.network = level;
  options.device_rates = free_devices();
  options.record_critical_path = false;
  options.record_flows = true;
  const std::int64_t elements = bytes.count() / 4;
  plan::Workload workload;
  workload.name = "one gradient";
  workload.tensors = {{"gradient", elements, 1_ns}};
  plan::Plan plan;
  plan.name = graph.name();
  plan.rank_names.assign(topology.rank_count(), "rank");
  plan.workload_digest = workload.digest();
  plan.workload_name = workload.name;
  plan.schedules.push_back(graph);
  plan.buckets = {{.tensors = {0}, .elements = elements, .slice_elements = kSliceElements}};
  plan.batch.local_batch.assign(topology.rank_count(), 1);
  const StepResult step = simulate_step(plan, workload, topology, options);
  Outcome outcome;
  outcome.queues = step.queues;
  const Duration first =
      step.records.flow_records.front().start;  // they are in the order of their starts
  for (const FlowRecord& flow : step.records.flow_records) {
    outcome.completions.push_back((flow.delivered - first).seconds());
  }
  outcome.makespan = *std::max_element(outcome.completions.begin(), outcome.completions.end());
  outcome.mean_completion =
      std::accumulate(outcome.completions.begin(), outcome.completions.end(), 0.0) /
      static_cast<double>(outcome.completions.size());
  return outcome;
}

Comparison compare(std::string name, const plan::TransferGraph& graph, Bytes bytes,
                   const topology::Topology& topology, const PacketOptions& packets) {
  return {std::move(name), simulate(graph, bytes, topology, NetworkLevel::kFlow, packets),
          simulate(graph, bytes, topology, NetworkLevel::kPacket, packets)};
}

}  // namespace

topology::Topology fat_tree(int oversubscription) {
  std::string text =
      read_file(rackrail::test::source_dir() / "configs/clusters/fat-tree-128-2to1.yaml");
  if (oversubscription == 1) {
    const auto replace = [&](const std::string& from, const std::string& to) {
      text.replace(text.find(from), from.size(), to);
    };
    replace("count: 4, oversubscription: 2", "count: 8, oversubscription: 1");
    replace("core: { count: 16,", "core: { count: 32,");
  }
  const rackrail::test::TemporaryDirectory folder;
  const std::filesystem::path file = folder.path() / "fat-tree.yaml";
  std::ofstream(file) << text;
  return topology::read_cluster(file.string()).topology;
}

Flows permutation(int oversubscription, Bytes bytes, unsigned seed) {
  Flows flows{
      fmt::format("permutation {}:1, {}, seed {}", oversubscription, to_string(bytes), seed),
      fat_tree(oversubscription),
      {},
      bytes};
  // A random cycle through all hosts: nobody sends to itself.
  const std::vector<std::size_t> order = shuffled(flows.topology.rank_count(), seed);
  topology::Router router(flows.topology);
  for (std::size_t i = 0; i < order.size(); ++i) {
    flows.routes.push_back(router.route(Rank(order[i]), Rank(order[(i + 1) % order.size()])));
  }
  return flows;
}

Flows incast(std::size_t senders, Bytes bytes) {
  Flows flows{fmt::format("incast {}:1, {}", senders, to_string(bytes)),
              topology::Topology("star"),
              {},
              bytes};
  topology::Topology& star = flows.topology;
  const NodeId hub = star.add_node({.name = "hub", .kind = topology::NodeKind::kTor});
  for (std::size_t i = 0; i <= senders; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host =
        star.add_node({.name = name, .kind = topology::NodeKind::kHost, .host = name});
    star.add_rank(host);
    star.add_duplex_link({.from = host, .to = hub, .bandwidth = 100_Gbps, .latency = 690_ns});
  }
  topology::Router router(star);
  for (std::size_t i = 1; i <= senders; ++i) {
    flows.routes.push_back(router.route(Rank(i), Rank(0)));
  }
  return flows;
}

Flows uneven_incast(std::size_t senders, Bytes bytes) {
  Flows flows = incast(senders, bytes);
  flows.name = fmt::format("uneven incast {}:1, {}", senders, to_string(bytes));
  topology::Topology& star = flows.topology;
  const auto set = [&](LinkId link, Bandwidth rate) {
    star.set_link_rate(link, rate, star.link(link).latency);
  };
  const Bandwidth shared = star.link(flows.routes.front().back()).bandwidth;
  set(flows.routes.front().front(),
      Bandwidth(shared.bytes_per_second() / static_cast<std::int64_t>(senders)));
  for (std::size_t f = 1; f < flows.routes.size(); ++f) {
    set(flows.routes[f].front(), Bandwidth(shared.bytes_per_second() * 2));
  }
  return flows;
}

Flows parking_lot(std::size_t hops, Bytes bytes) {
  Flows flows{fmt::format("parking lot of {}, {}", hops, to_string(bytes)),
              topology::Topology("parking lot"),
              {},
              bytes};
  topology::Topology& lot = flows.topology;
  const auto vertex = [&](const char* kind, std::size_t i) {
    return lot.add_node({.name = fmt::format("{}{}", kind, i)});
  };
  const auto join = [&](NodeId a, NodeId b) {
    return lot.add_link({.from = a, .to = b, .bandwidth = 100_Gbps, .latency = 690_ns});
  };
  NodeId at = vertex("switch", 0);
  std::vector<LinkId> through = {join(vertex("source", 0), at)};
  for (std::size_t i = 1; i <= hops; ++i) {
    const NodeId next = vertex("switch", i);
    const LinkId shared = join(at, next);
    flows.routes.push_back({join(vertex("source", i), at), shared, join(next, vertex("sink", i))});
    through.push_back(shared);
    at = next;
  }
  through.push_back(join(at, vertex("sink", 0)));
  flows.routes.insert(flows.routes.begin(), through);
  return flows;
}

Outcome on_flow_level(const Flows& flows) {
  MaxMinNetwork network(flows.topology);
  return run(network, flows);
}

Outcome on_packet_level(const Flows& flows, const PacketOptions& options) {
  PacketNetwork network(flows.topology, options);
  return run(network, flows);
}

Comparison compare(const Flows& flows, const PacketOptions& options) {
  return {flows.name, on_flow_level(flows), on_packet_level(flows, options)};
}

Comparison compare_all_reduce(std::string_view schedule, Bytes bytes,
                              const PacketOptions& packets) {
  const topology::Topology topology = fat_tree(2);
  topology::Router router(topology);
  const plan::TransferGraph graph =
      planner::schedule_family(schedule).all_reduce({topology, router, {}});
  return compare(fmt::format("all-reduce {}, {}", schedule, to_string(bytes)), graph, bytes,
                 topology, packets);
}

Comparison compare_on(std::string_view cluster, std::string_view schedule, Bytes bytes,
                      const PacketOptions& packets) {
  const topology::Topology topology =
      topology::read_cluster(
          (rackrail::test::source_dir() / "configs/clusters" / cluster).string() + ".yaml")
          .topology;
  topology::Router router(topology);
  const plan::TransferGraph graph =
      planner::schedule_family(schedule).all_reduce({topology, router, {}});
  return compare(fmt::format("{}: {}, {}", cluster, schedule, to_string(bytes)), graph, bytes,
                 topology, packets);
}

Comparison compare_random_ring(Bytes bytes, unsigned seed, const PacketOptions& packets) {
  const topology::Topology topology = fat_tree(2);
  const std::size_t n = topology.rank_count();
  const std::vector<std::size_t> order = shuffled(n, seed);
  plan::TransferGraph graph("random ring", plan::Collective::kAllReduce, n,
                            std::vector<std::uint32_t>(n, 1));
  const RouteId route = graph.add_route({});
  std::vector<TransferId> last(n);
  for (std::size_t step = 0; step < 2 * (n - 1); ++step) {
    for (std::size_t chunk = 0; chunk < n; ++chunk) {
      const auto op = step < n - 1 ? plan::TransferOp::kReduce : plan::TransferOp::kCopy;
      last[chunk] = graph.add_transfer({.src = Rank(order[(chunk + step) % n]),
                                        .dst = Rank(order[(chunk + step + 1) % n]),
                                        .chunk_begin = static_cast<std::uint32_t>(chunk),
                                        .op = op,
                                        .route = route},
                                       {&last[chunk], std::size_t{step == 0 ? 0U : 1U}});
    }
  }
  return compare(
      fmt::format("all-reduce ring in random order, {}, seed {}", to_string(bytes), seed), graph,
      bytes, topology, packets);
}

Comparison compare_dragonfly_ring(Bytes bytes, const PacketOptions& packets) {
  constexpr std::size_t kGroups = 4;
  constexpr std::size_t kSwitches = kGroups - 1;  // of a group: one for each other group
  topology::Topology topology("dragonfly");
  std::vector<std::vector<NodeId>> switches(kGroups);
  const auto join = [&](NodeId a, NodeId b, Duration latency) {
    topology.add_duplex_link({.from = a, .to = b, .bandwidth = 100_Gbps, .latency = latency});
  };
  for (std::size_t group = 0; group < kGroups; ++group) {
    for (std::size_t i = 0; i < kSwitches; ++i) {
      const NodeId one = topology.add_node({.name = fmt::format("switch{}.{}", group, i)});
      for (const NodeId other : switches[group]) {
        join(other, one, 500_ns);
      }
      switches[group].push_back(one);
      for (int host = 0; host < 2; ++host) {
        const std::string name = fmt::format("host{}", topology.rank_count());
        const NodeId node =
            topology.add_node({.name = name, .kind = topology::NodeKind::kHost, .host = name});
        topology.add_rank(node);
        join(node, one, 1_us);
      }
    }
  }
  for (std::size_t a = 0; a < kGroups; ++a) {
    for (std::size_t b = a + 1; b < kGroups; ++b) {
      join(switches[a][b - 1], switches[b][a], 2_us);
    }
  }
  topology::Router router(topology);
  const plan::TransferGraph graph =
      planner::schedule_family("ring").all_reduce({topology, router, {}});
  return compare(fmt::format("dragonfly of 24: ring, {}", to_string(bytes)), graph, bytes, topology,
                 packets);
}

std::string table_head() {
  return "| case | flow ms | packet ms | makespan | mean completion | longest queue | marks | "
         "pauses | trims |\n"
         "| --- | --- | --- | --- | --- | --- | --- | --- | --- |";
}

std::string table_row(const Comparison& comparison) {
  Bytes longest;
  std::uint64_t marks = 0;
  std::uint64_t pauses = 0;
  std::uint64_t trims = 0;
  for (const QueueUse& use : comparison.packet.queues) {
    longest = std::max(longest, use.longest);
    marks += use.marks;
    pauses += use.pauses;
    trims += use.trims;
  }
  constexpr double kMilli = 1e3;
  return fmt::format(
      "| {} | {:.3f} | {:.3f} | {:+.1f} % | {:+.1f} % | {} KiB | {} | {} | {} |", comparison.name,
      comparison.flow.makespan * kMilli, comparison.packet.makespan * kMilli,
      (comparison.makespan_ratio() - 1) * kPercent, (comparison.completion_ratio() - 1) * kPercent,
      longest.count() / 1024, marks, pauses, trims);
}

}  // namespace rackrail::sim::test
