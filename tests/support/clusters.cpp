#include "tests/support/clusters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/file.hpp"
#include "topology/reader.hpp"

namespace rackrail::test {

using topology::NodeKind;
using topology::Topology;

namespace {

constexpr int kNvLink = 300;

NodeId add_gpu(Topology& topology, const std::string& name, const std::string& host,
               const std::string& rack = "") {
  const NodeId gpu = topology.add_node(
      {.name = name, .kind = NodeKind::kGpu, .host = host, .rack = rack, .device_class = "H100"});
  topology.add_rank(gpu);
  return gpu;
}

void join(Topology& topology, NodeId a, NodeId b, int gigabytes_per_second) {
  topology::Link link;
  link.from = a;
  link.to = b;
  link.bandwidth = Bandwidth(std::int64_t{1'000'000'000} * gigabytes_per_second);
  link.latency = Duration(1'000'000);
  topology.add_duplex_link(link);
}

/// GPU i has a NIC to switch i mod their number.
void add_box(Topology& topology, const std::string& host, const std::string& rack,
             const std::vector<int>& nics, const std::vector<NodeId>& switches, int nvlink) {
  const NodeId inside = topology.add_node(
      {.name = host + "-switch", .kind = NodeKind::kNvSwitch, .host = host, .rack = rack});
  for (std::size_t g = 0; g < nics.size(); ++g) {
    const NodeId gpu = add_gpu(topology, fmt::format("{}-gpu{}", host, g), host, rack);
    join(topology, gpu, inside, nvlink);
    if (nics[g] > 0) join(topology, gpu, switches[g % switches.size()], nics[g]);
  }
}

std::vector<NodeId> add_spines(Topology& topology, std::size_t count) {
  std::vector<NodeId> spines;
  for (std::size_t i = 0; i < count; ++i) {
    spines.push_back(
        topology.add_node({.name = fmt::format("spine{}", i), .kind = NodeKind::kSpine}));
  }
  return spines;
}

}  // namespace

Topology boxes(int count, int rails) {
  return boxes_with_nics(
      std::vector<std::vector<int>>(static_cast<std::size_t>(count), std::vector<int>(8, 25)),
      rails);
}

Topology boxes_with_nics(const std::vector<std::vector<int>>& nics, int rails,
                         const std::vector<int>& inside) {
  Topology topology("boxes");
  const std::vector<NodeId> switches = add_spines(topology, static_cast<std::size_t>(rails));
  for (std::size_t b = 0; b < nics.size(); ++b) {
    add_box(topology, fmt::format("box{}", b), "", nics[b], switches,
            inside.empty() ? kNvLink : inside[b]);
  }
  return topology;
}

Topology rails_with_slow_nic(std::size_t boxes, int rate) {
  std::vector<std::vector<int>> nics(boxes, std::vector<int>(8, 25));
  nics.front().front() = rate;
  return boxes_with_nics(nics, 8);
}

Topology rails_with_slow_diagonal() {
  std::vector<std::vector<int>> nics(8, std::vector<int>(8, 25));
  for (std::size_t box = 0; box < nics.size(); ++box) nics[box][box] = 12;
  return boxes_with_nics(nics, 8);
}

Topology rails_with_slow_boxes(std::size_t slow) {
  std::vector<std::vector<int>> nics(6, std::vector<int>(4, 25));
  for (std::size_t i = 0; i < slow; ++i) nics[2 * i].assign(4, 10);
  return boxes_with_nics(nics, 4);
}

Topology old_and_new_boxes() {
  const std::vector<int> modern(8, 25);
  const std::vector<int> old = {12, 0, 12, 0, 0, 12, 0, 12};
  return boxes_with_nics({modern, modern, old, old}, 2, {300, 300, 150, 150});
}

Topology large_and_small_boxes() {
  const std::vector<int> large(8, 25);
  const std::vector<int> small(4, 25);
  return boxes_with_nics({large, small, large, small}, 1);
}

Topology rails_of_two_kinds() {
  const std::vector<int> large(8, 12);
  const std::vector<int> small(4, 25);
  return boxes_with_nics({large, large, large, small, small, small}, 4,
                         {300, 300, 300, 200, 200, 200});
}

Topology racks_of_boxes(const std::vector<BoxRack>& racks) {
  Topology topology("racks of boxes");
  const std::vector<NodeId> spines = add_spines(topology, racks.front().uplinks.front().size());
  for (std::size_t r = 0; r < racks.size(); ++r) {
    const std::string rack = fmt::format("rack{}", r);
    std::vector<NodeId> leaves;
    for (const std::vector<int>& uplinks : racks[r].uplinks) {
      leaves.push_back(topology.add_node({.name = fmt::format("{}-leaf{}", rack, leaves.size()),
                                          .kind = NodeKind::kTor,
                                          .rack = rack}));
      for (std::size_t s = 0; s < spines.size(); ++s) {
        if (uplinks[s] > 0) join(topology, leaves.back(), spines[s], uplinks[s]);
      }
    }
    for (std::size_t b = 0; b < racks[r].nics.size(); ++b) {
      add_box(topology, fmt::format("{}-box{}", rack, b), rack, racks[r].nics[b], leaves, kNvLink);
    }
  }
  return topology;
}

Topology racks_of_two_kinds() {
  const std::vector<int> large(8, 25);
  const std::vector<int> small(4, 25);
  return racks_of_boxes({{{large, large}, {{200}}}, {{small, small, small}, {{150}}}});
}

Topology rails_with_lost_cable() {
  const std::vector<std::vector<int>> boxes(2, std::vector<int>(8, 25));
  std::vector<std::vector<int>> uplinks(4, {25, 25});
  const BoxRack whole{boxes, uplinks};
  uplinks[1][1] = 0;
  return racks_of_boxes({{boxes, uplinks}, whole});
}

Topology nics_by_host() {
  return boxes_with_nics({{25, 25, 25, 25}, {25, 25, 25, 25}, {10, 10, 10, 10}, {3, 3, 3, 3}}, 1);
}

Topology nics_by_gpu() {
  return boxes_with_nics(std::vector<std::vector<int>>(4, {25, 25, 10, 3}), 1);
}

Topology uneven_hosts() {
  return boxes_with_nics({{25, 25, 25, 25, 25, 25}, {50, 50, 50}, {10, 25, 10, 25}}, 1);
}

Topology missing_nics() {
  return boxes_with_nics({{25, 0, 25, 0}, {25, 25, 25, 25}, {0, 0, 50, 50}}, 2);
}

Topology grid(int rows, int columns, bool wrap) {
  Topology topology(wrap ? "torus" : "mesh");
  std::vector<NodeId> gpus;
  for (int i = 0; i < rows * columns; ++i) {
    gpus.push_back(add_gpu(topology, fmt::format("gpu{}", i), ""));
  }
  const auto at = [&](int row, int column) {
    return gpus[static_cast<std::size_t>(row % rows * columns + column % columns)];
  };
  const auto next = [&](int length) { return wrap && length > 2 ? length : length - 1; };
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      if (row < next(rows)) join(topology, at(row, column), at(row + 1, column), 1);
      if (column < next(columns)) join(topology, at(row, column), at(row, column + 1), 1);
    }
  }
  return topology;
}

Topology cuboid(int layers, int rows, int columns) {
  Topology topology("torus");
  std::vector<NodeId> gpus;
  for (int i = 0; i < layers * rows * columns; ++i) {
    gpus.push_back(add_gpu(topology, fmt::format("gpu{}", i), ""));
  }
  const auto join_along = [&](int stride, int length) {
    for (int i = 0; i < static_cast<int>(gpus.size()); ++i) {
      const int at = i / stride % length;
      if (length > 2 || at + 1 < length) {
        const int next = i + ((at + 1) % length - at) * stride;
        join(topology, gpus[static_cast<std::size_t>(i)], gpus[static_cast<std::size_t>(next)], 1);
      }
    }
  };
  join_along(rows * columns, layers);
  join_along(columns, rows);
  join_along(1, columns);
  return topology;
}

Topology two_racks() {
  Topology topology("two racks");
  const NodeId core = topology.add_node({.name = "core", .kind = NodeKind::kCore});
  for (int r = 0; r < 2; ++r) {
    const std::string rack = fmt::format("rack{}", r);
    const NodeId tor = topology.add_node({.name = rack + "-tor", .kind = NodeKind::kTor});
    join(topology, tor, core, 4);
    for (int h = 0; h < 2; ++h) {
      const std::string host = fmt::format("{}-host{}", rack, h);
      join(topology, add_gpu(topology, host, host, rack), tor, 10);
    }
  }
  return topology;
}

Topology clos(const std::vector<int>& hosts, int uplinks) {
  Topology topology("clos");
  std::vector<NodeId> spines;
  for (int i = 0; i < uplinks; ++i) {
    spines.push_back(
        topology.add_node({.name = fmt::format("spine{}", i), .kind = NodeKind::kSpine}));
  }
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const std::string rack = fmt::format("rack{}", r);
    const NodeId tor =
        topology.add_node({.name = rack + "-tor", .kind = NodeKind::kTor, .rack = rack});
    for (const NodeId spine : spines) join(topology, tor, spine, 10);
    for (int h = 0; h < hosts[r]; ++h) {
      const std::string host = fmt::format("{}-host{}", rack, h);
      join(topology, add_gpu(topology, host, host, rack), tor, 10);
    }
  }
  return topology;
}

Topology clos_of_cables(const std::vector<std::vector<int>>& nics,
                        const std::vector<std::vector<int>>& cables) {
  Topology topology("clos of cables");
  const std::vector<NodeId> spines = add_spines(topology, cables.front().size());
  for (std::size_t r = 0; r < nics.size(); ++r) {
    const std::string rack = fmt::format("rack{}", r);
    const NodeId leaf =
        topology.add_node({.name = rack + "-leaf", .kind = NodeKind::kTor, .rack = rack});
    for (std::size_t s = 0; s < spines.size(); ++s) {
      if (cables[r][s] > 0) join(topology, leaf, spines[s], cables[r][s]);
    }
    for (std::size_t h = 0; h < nics[r].size(); ++h) {
      const std::string host = fmt::format("{}-host{}", rack, h);
      join(topology, add_gpu(topology, host, host, rack), leaf, nics[r][h]);
    }
  }
  return able(std::move(topology), {NodeKind::kTor, NodeKind::kSpine});
}

Topology clos_of_unlike_spines() {
  return clos_of_cables({{10, 10}, {10, 10, 10, 10}, {10, 10, 10}},
                        {{5, 3, 2}, {5, 3, 2}, {5, 3, 2}});
}

Topology clos_with_lost_cables() {
  const std::vector<int> hosts(4, 10);
  return clos_of_cables({hosts, hosts, hosts}, {{0, 5, 5}, {5, 0, 5}, {5, 5, 0}});
}

Topology clos_with_slow_cables() {
  const std::vector<int> hosts(4, 10);
  return clos_of_cables({hosts, hosts, hosts}, {{1, 5, 5}, {5, 1, 5}, {5, 5, 1}});
}

Topology clos_of_unlike_racks() {
  return clos_of_cables({{25, 25, 25},
                         {25, 25, 25, 25, 25, 10},
                         {10, 10, 10, 10, 25, 25, 10, 10, 10, 10},
                         {25, 10, 25, 10, 25},
                         std::vector<int>(8, 25)},
                        {{5, 5, 2, 2}, {5, 3, 3, 0}, {4, 3, 3, 0}, {0, 4, 3, 3}, {2, 2, 2, 4}});
}

Topology racks(const std::vector<std::vector<int>>& nics, const std::vector<int>& uplinks) {
  Topology topology("racks");
  const NodeId core = topology.add_node({.name = "core", .kind = NodeKind::kCore});
  for (std::size_t r = 0; r < nics.size(); ++r) {
    const std::string rack = fmt::format("rack{}", r);
    const NodeId tor =
        topology.add_node({.name = rack + "-tor", .kind = NodeKind::kTor, .rack = rack});
    join(topology, tor, core, uplinks[r]);
    for (std::size_t h = 0; h < nics[r].size(); ++h) {
      const std::string host = fmt::format("{}-host{}", rack, h);
      join(topology, add_gpu(topology, host, host, rack), tor, nics[r][h]);
    }
  }
  return topology;
}

Topology pcie_hosts(int hosts) {
  constexpr int kPcie = 32;
  Topology topology("PCIe hosts");
  const NodeId tor = topology.add_node({.name = "tor", .kind = NodeKind::kTor});
  for (int h = 0; h < hosts; ++h) {
    const std::string host = fmt::format("host{}", h);
    std::optional<NodeId> last;
    for (int half = 0; half < 2; ++half) {
      const NodeId pcie = topology.add_node({.name = fmt::format("{}-pcie{}", host, half),
                                             .kind = NodeKind::kPciSwitch,
                                             .host = host});
      const NodeId nic = topology.add_node(
          {.name = fmt::format("{}-nic{}", host, half), .kind = NodeKind::kNic, .host = host});
      join(topology, nic, tor, 25);
      join(topology, nic, pcie, kPcie);
      for (int g = 0; g < 2; ++g) {
        join(topology, add_gpu(topology, fmt::format("{}-gpu{}", host, 2 * half + g), host), pcie,
             kPcie);
      }
      if (last) {
        join(topology, *last, pcie, kPcie);
      }
      last = pcie;
    }
  }
  return topology;
}

Topology three_tiers(const std::vector<std::vector<int>>& hosts, int uplinks) {
  Topology topology("three tiers");
  const NodeId core = topology.add_node({.name = "core", .kind = NodeKind::kCore});
  for (std::size_t p = 0; p < hosts.size(); ++p) {
    std::vector<NodeId> spines;
    for (int i = 0; i < uplinks; ++i) {
      spines.push_back(
          topology.add_node({.name = fmt::format("spine{}.{}", p, i), .kind = NodeKind::kSpine}));
      join(topology, spines.back(), core, 10);
    }
    for (std::size_t r = 0; r < hosts[p].size(); ++r) {
      const std::string rack = fmt::format("rack{}.{}", p, r);
      const NodeId tor =
          topology.add_node({.name = rack + "-tor", .kind = NodeKind::kTor, .rack = rack});
      for (const NodeId spine : spines) join(topology, tor, spine, 10);
      for (int h = 0; h < hosts[p][r]; ++h) {
        const std::string host = fmt::format("{}-host{}", rack, h);
        join(topology, add_gpu(topology, host, host, rack), tor, 10);
      }
    }
  }
  return topology;
}

Topology pods(const std::vector<std::vector<std::vector<int>>>& gpus) {
  constexpr int kNvlink = 300;
  constexpr int kNic = 12;
  constexpr int kUplink = 6;
  Topology topology("pods");
  std::optional<NodeId> core;
  if (gpus.size() > 1) {
    core = topology.add_node({.name = "core", .kind = NodeKind::kCore});
  }
  for (std::size_t p = 0; p < gpus.size(); ++p) {
    const NodeId spine =
        topology.add_node({.name = fmt::format("spine{}", p), .kind = NodeKind::kSpine});
    if (core) {
      join(topology, spine, *core, kUplink);
    }
    for (std::size_t r = 0; r < gpus[p].size(); ++r) {
      const std::string rack = fmt::format("rack{}.{}", p, r);
      const NodeId tor =
          topology.add_node({.name = rack + "-tor", .kind = NodeKind::kTor, .rack = rack});
      join(topology, tor, spine, kUplink);
      for (std::size_t h = 0; h < gpus[p][r].size(); ++h) {
        const std::string host = fmt::format("{}-host{}", rack, h);
        const NodeId nvswitch = topology.add_node(
            {.name = host + "-nvswitch", .kind = NodeKind::kNvSwitch, .host = host, .rack = rack});
        join(topology, nvswitch, tor, kNic);
        for (int g = 0; g < gpus[p][r][h]; ++g) {
          join(topology, add_gpu(topology, fmt::format("{}-gpu{}", host, g), host, rack), nvswitch,
               kNvlink);
        }
      }
    }
  }
  return topology;
}

Topology cube_mesh() {
  Topology topology("cube mesh");
  std::vector<NodeId> gpus;
  for (int i = 0; i < 8; ++i) gpus.push_back(add_gpu(topology, fmt::format("gpu{}", i), "dgx"));
  constexpr struct {
    std::size_t a, b;
    int links;
  } kPairs[] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1},
                {1, 5, 2}, {2, 3, 2}, {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1},
                {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  for (const auto& pair : kPairs) join(topology, gpus[pair.a], gpus[pair.b], pair.links);
  return topology;
}

Topology uneven_star() {
  Topology topology("star");
  const NodeId middle = topology.add_node({.name = "switch", .kind = NodeKind::kTor});
  for (int h = 0; h < 8; ++h) {
    const std::string host = fmt::format("host{}", h);
    join(topology, add_gpu(topology, host, host), middle, h == 7 ? 25 : 100);
  }
  return topology;
}

Topology hosts_with_nics(int hosts, const std::vector<int>& nics) {
  Topology topology("hosts with several NICs");
  std::vector<NodeId> switches;
  for (std::size_t s = 0; s < nics.size(); ++s) {
    switches.push_back(
        topology.add_node({.name = fmt::format("switch{}", s), .kind = NodeKind::kTor}));
  }
  for (int h = 0; h < hosts; ++h) {
    const std::string host = fmt::format("host{}", h);
    const NodeId gpu = add_gpu(topology, host, host);
    for (std::size_t s = 0; s < nics.size(); ++s) {
      join(topology, gpu, switches[s], nics[s]);
    }
  }
  return topology;
}

Topology staged_gpus(const std::vector<std::string>& hosts, std::int64_t staging) {
  Topology topology("gpus on a switch");
  const NodeId hub = topology.add_node(
      {.name = "hub", .kind = NodeKind::kTor, .multicasts = true, .reduces = true});
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    topology::Node node{.name = fmt::format("gpu{}", i), .kind = NodeKind::kGpu, .host = hosts[i]};
    node.host_staging = Bandwidth(staging);
    const NodeId gpu = topology.add_node(node);
    topology.add_rank(gpu);
    topology.add_duplex_link({.from = gpu, .to = hub, .bandwidth = 1_GBps, .latency = 3_us});
  }
  return topology;
}

Topology rail_racks(const RailRacks& shape) {
  const std::string text = fmt::format(
      R"(name: rails of racks
node_types:
  box:
    gpus: {gpus}
    device_class: a100
    nvlink: {{ bandwidth: 300 GB/s, latency: 300 ns, switched: true }}
    pcie: {{ bandwidth: 31.5 GB/s, latency: 500 ns, gpus_per_switch: {per_switch} }}
    nics: {{ count: {nics}, link: rdma }}
racks: {{ count: {racks}, hosts: {hosts}, type: box }}
network:
  wiring: rail-optimised
  spine: {{ count: {spines}, oversubscription: {over}, link: rdma }}
)",
      fmt::arg("gpus", shape.gpus), fmt::arg("per_switch", shape.gpus / shape.nics),
      fmt::arg("nics", shape.nics), fmt::arg("racks", shape.racks), fmt::arg("hosts", shape.hosts),
      fmt::arg("spines", shape.spines), fmt::arg("over", shape.oversubscription));
  return topology::read_cluster_text("rail-racks.yaml", text).topology;
}

namespace {

/// A shipped cluster with other racks than its own.
Topology with_racks(const std::string& cluster, const std::string& shipped,
                    const std::string& racks) {
  const auto path = topology::configs_folder() / "clusters" / (cluster + ".yaml");
  std::string text = read_file(path);
  const std::size_t at = text.find(shipped);
  if (at == std::string::npos) {
    throw std::logic_error(path.string() + ": no '" + shipped + "'");
  }
  text.replace(at, shipped.size(), racks);
  return topology::read_cluster_text(path, text).topology;
}

Topology a100_boxes(const std::string& racks) {
  return with_racks("a100-8x8", "count: 2, hosts: 4,", racks);
}

}  // namespace

Topology a100_4x8() { return a100_boxes("count: 2, hosts: 2,"); }
Topology a100_16x8() { return a100_boxes("count: 4, hosts: 4,"); }
Topology h100_128x8() { return with_racks("h100-32x8-rail", "count: 1,", "count: 4,"); }

Topology able(Topology topology, std::initializer_list<NodeKind> kinds) {
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    topology::Node node = topology.node(NodeId(v));
    node.multicasts = node.reduces =
        std::find(kinds.begin(), kinds.end(), node.kind) != kinds.end();
    topology.set_node_properties(NodeId(v), node);
  }
  return topology;
}

Topology with_bursts(const Topology& topology, const std::function<Bytes(LinkId)>& burst) {
  Topology bursty(topology.name());
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    bursty.add_node(topology.node(NodeId(v)));
  }
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    topology::Link link = topology.link(LinkId(l));
    link.burst = burst(LinkId(l));
    bursty.add_link(std::move(link));
  }
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    bursty.add_rank(topology.node_of(Rank(r)));
    if (const auto processor = topology.processor_of(Rank(r))) {
      bursty.set_processor(Rank(r), *processor);
    }
  }
  return bursty;
}

std::size_t diameter_of(const Topology& topology) {
  std::size_t diameter = 0;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    std::vector<std::size_t> distance(topology.node_count(), SIZE_MAX);
    std::vector<NodeId> reached{topology.node_of(Rank(r))};
    distance[reached.front().index()] = 0;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      for (const LinkId link : topology.links_out_of(reached[i])) {
        const NodeId to = topology.link(link).to;
        if (distance[to.index()] == SIZE_MAX) {
          distance[to.index()] = distance[reached[i].index()] + 1;
          reached.push_back(to);
        }
      }
    }
    for (std::size_t other = 0; other < topology.rank_count(); ++other) {
      diameter = std::max(diameter, distance[topology.node_of(Rank(other)).index()]);
    }
  }
  return diameter;
}

topology::Topology random_pods(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  const bool is_regular = pick(0, 3) == 0;
  const int racks = pick(1, 3);
  const int hosts = pick(1, 3);
  const int gpus = pick(1, 4);
  std::vector<std::vector<std::vector<int>>> counts(static_cast<std::size_t>(pick(1, 3)));
  for (auto& pod : counts) {
    pod.resize(static_cast<std::size_t>(is_regular ? racks : pick(1, 3)));
    for (auto& rack : pod) {
      rack.resize(static_cast<std::size_t>(is_regular ? hosts : pick(1, 3)));
      for (int& host : rack) {
        host = is_regular ? gpus : pick(1, 4);
      }
    }
  }
  return pods(counts);
}

}  // namespace rackrail::test
