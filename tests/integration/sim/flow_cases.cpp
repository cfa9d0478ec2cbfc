#include "tests/integration/sim/flow_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>

#include "base/file.hpp"
#include "sim/max_min_network.hpp"
#include "sim/packet_network.hpp"
#include "tests/support/paths.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::sim::test {

namespace {

Outcome run(NetworkModel& network, const Case& flows) {
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
        outcome.completions[event.tag] = now;
        outcome.makespan = now;
      }
    }
  }
  outcome.mean_completion =
      std::accumulate(outcome.completions.begin(), outcome.completions.end(), 0.0) /
      static_cast<double>(flows.routes.size());
  return outcome;
}

}  // namespace

Case permutation(int oversubscription, Bytes bytes, unsigned seed) {
  std::string text =
      read_file(rackrail::test::source_dir() / "configs/clusters/fat-tree-128-2to1.yaml");
  if (oversubscription == 1) {
    const std::string racks = "count: 4, oversubscription: 2";
    const std::string cores = "core: { count: 16,";
    text.replace(text.find(racks), racks.size(), "count: 8, oversubscription: 1");
    text.replace(text.find(cores), cores.size(), "core: { count: 32,");
  }
  const rackrail::test::TemporaryDirectory folder;
  const std::filesystem::path file = folder.path() / "fat-tree.yaml";
  std::ofstream(file) << text;
  Case result{fmt::format("permutation of 128, {}:1", oversubscription),
              topology::read_cluster(file.string()).topology,
              {},
              bytes};
  const std::size_t hosts = result.topology.rank_count();
  // A random cycle through all hosts: nobody sends to itself.
  std::vector<std::size_t> order(hosts);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(seed);
  for (std::size_t i = hosts - 1; i > 0; --i) {
    std::swap(order[i], order[random() % (i + 1)]);
  }
  topology::Router router(result.topology);
  for (std::size_t i = 0; i < hosts; ++i) {
    result.routes.push_back(router.route(Rank(order[i]), Rank(order[(i + 1) % hosts])));
  }
  return result;
}

Case incast(std::size_t senders, Bytes bytes) {
  Case result{fmt::format("incast {}:1", senders), topology::Topology("star"), {}, bytes};
  topology::Topology& star = result.topology;
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
    result.routes.push_back(router.route(Rank(i), Rank(0)));
  }
  return result;
}

Outcome run_flow_level(const Case& flows) {
  MaxMinNetwork network(flows.topology);
  return run(network, flows);
}

Outcome run_packet_level(const Case& flows, const PacketOptions& options,
                         std::vector<QueueUse>* queues) {
  PacketNetwork network(flows.topology, options);
  Outcome outcome = run(network, flows);
  if (queues != nullptr) {
    *queues = network.queues();
  }
  return outcome;
}

}  // namespace rackrail::sim::test
