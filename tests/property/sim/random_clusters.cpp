#include "tests/property/sim/random_clusters.hpp"

#include <string>
#include <vector>

#include "base/random.hpp"
#include "tests/property/topology/random_topology.hpp"

namespace rackrail::sim::test {

namespace {

using topology::NodeKind;
using topology::Topology;

class ClusterDice {
 public:
  explicit ClusterDice(std::uint64_t seed) : seed_(seed) {}
  int from(int least, int most) {
    return least + static_cast<int>(random_bits(~seed_, counter_++) %
                                    static_cast<std::uint64_t>(most - least + 1));
  }

 private:
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

class RandomCluster {
 public:
  explicit RandomCluster(std::uint64_t seed)
      : topology_("random cluster " + std::to_string(seed)), dice_(seed) {}

  Topology star() {
    const NodeId hub = vertex("hub", NodeKind::kTor);
    for (int h = dice_.from(2, 16); h > 0; --h) {
      join(rank("host" + std::to_string(h), NodeKind::kHost), hub, dice_.from(1, 20));
    }
    return std::move(topology_);
  }

  Topology racks() {
    std::vector<NodeId> spines;
    for (int s = dice_.from(1, 3); s > 0; --s) {
      spines.push_back(vertex("spine" + std::to_string(s), NodeKind::kSpine));
    }
    const int most = dice_.from(1, 4);
    for (int r = dice_.from(2, 4); r > 0; --r) {
      const std::string rack = "rack" + std::to_string(r);
      const NodeId tor = vertex(rack, NodeKind::kTor);
      for (const NodeId spine : spines) {
        join(tor, spine, dice_.from(2, 20));
      }
      for (int h = dice_.from(1, most); h > 0; --h) {
        join(rank(rack + "-host" + std::to_string(h), NodeKind::kHost, rack), tor,
             dice_.from(5, 12));
      }
    }
    return std::move(topology_);
  }

  Topology machines() {
    const int rails = dice_.from(1, 4);
    std::vector<NodeId> switches;
    for (int s = 0; s < rails; ++s) {
      switches.push_back(vertex("rail" + std::to_string(s), NodeKind::kTor));
    }
    const int gpus = dice_.from(1, 4);
    const bool has_nics = dice_.from(0, 1) == 1;
    for (int m = dice_.from(2, 4); m > 0; --m) {
      machine_ = "machine" + std::to_string(m);
      const NodeId inside = vertex(machine_ + "-nvswitch", NodeKind::kNvSwitch);
      for (int g = 0; g < gpus; ++g) {
        const std::string name = machine_ + "-gpu" + std::to_string(g);
        const NodeId gpu = rank(name, NodeKind::kGpu);
        join(gpu, inside, dice_.from(50, 300));
        NodeId port = gpu;
        if (has_nics) {
          port = vertex(name + "-nic", NodeKind::kNic);
          join(gpu, port, dice_.from(20, 40));
        }
        join(port, switches[static_cast<std::size_t>(g % rails)], dice_.from(10, 25));
      }
    }
    return std::move(topology_);
  }

  Topology ring() {
    std::vector<NodeId> hosts;
    for (int h = dice_.from(3, 12); h > 0; --h) {
      hosts.push_back(rank("host" + std::to_string(h), NodeKind::kHost));
    }
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      join(hosts[h], hosts[(h + 1) % hosts.size()], dice_.from(3, 12));
    }
    return std::move(topology_);
  }

 private:
  NodeId vertex(const std::string& name, NodeKind kind) {
    const bool is_inside = kind == NodeKind::kNvSwitch || kind == NodeKind::kNic;
    return topology_.add_node({.name = name, .kind = kind, .host = is_inside ? machine_ : ""});
  }
  NodeId rank(const std::string& name, NodeKind kind, const std::string& rack = "") {
    const NodeId node = topology_.add_node(
        {.name = name, .kind = kind, .host = machine_.empty() ? name : machine_, .rack = rack});
    topology_.add_rank(node);
    return node;
  }
  /// GB/s; every fifth cable has another rate on its way back.
  void join(NodeId a, NodeId b, int rate) {
    const int back = dice_.from(1, 5) == 1 ? dice_.from(1, rate) : rate;
    const Duration latency(dice_.from(100, 5'000) * std::int64_t{1'000});
    one_way(a, b, rate, latency);
    one_way(b, a, back, latency);
  }
  void one_way(NodeId from, NodeId to, int rate, Duration latency) {
    topology_.add_link({.from = from,
                        .to = to,
                        .bandwidth = Bandwidth(std::int64_t{1'000'000'000} * rate),
                        .latency = latency});
  }

  Topology topology_;
  ClusterDice dice_;
  std::string machine_;
};

void degrade_some(Topology& topology, std::uint64_t seed) {
  ClusterDice dice(seed + (std::uint64_t{1} << 40U));
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    if (dice.from(1, 8) == 1) {
      const topology::Link& link = topology.link(LinkId(i));
      topology.set_link_rate(LinkId(i), Bandwidth(link.bandwidth.bytes_per_second() / 10),
                             link.latency);
    }
  }
}

Topology whole_cluster(std::uint64_t seed) {
  switch (seed % 5) {
    case 0:
      return RandomCluster(seed).star();
    case 1:
      return RandomCluster(seed).racks();
    case 2:
      return RandomCluster(seed).machines();
    case 3:
      return RandomCluster(seed).ring();
    default:
      return topology::test::random_topology(seed, 8, 5);
  }
}

}  // namespace

Topology random_cluster(std::uint64_t seed) {
  Topology topology = whole_cluster(seed);
  if (seed / 5 % 2 == 1) {
    degrade_some(topology, seed);
  }
  return topology;
}

}  // namespace rackrail::sim::test
