#include "tests/property/topology/random_topology.hpp"

#include <string>

#include "base/random.hpp"

namespace rackrail::topology::test {

Topology random_topology(std::uint64_t seed, int most_ranks, int most_switches, std::int64_t unit) {
  std::uint64_t counter = 0;
  const auto below = [&](int limit) {
    return static_cast<int>(random_bits(seed, counter++) % static_cast<std::uint64_t>(limit));
  };
  const int ranks = 2 + below(most_ranks - 1);
  const int switches = below(most_switches + 1);
  const int count = ranks + switches;
  Topology t("random " + std::to_string(seed));
  // Ranks and switches alternate at random.
  for (int v = 0, gpus = 0; v < count; ++v) {
    const bool is_rank = below(count - v) < ranks - gpus;
    Node node;
    node.name = (is_rank ? "gpu" : "s") + std::to_string(v);
    node.kind = is_rank ? NodeKind::kGpu : NodeKind::kSwitch;
    node.host = "host" + std::to_string(below(3));
    const NodeId id = t.add_node(std::move(node));
    if (is_rank) {
      t.add_rank(id);
      ++gpus;
    }
  }
  const auto add = [&](int a, int b) {
    Link link;
    link.from = NodeId(a);
    link.to = NodeId(b);
    link.bandwidth = Bandwidth((1 + below(20)) * unit);
    link.latency = Duration((1 + below(4)) * 1'000'000);
    t.add_link(std::move(link));
  };
  for (int v = 0; v < count; ++v) add(v, (v + 1) % count);
  for (int i = below(3 * count); i > 0; --i) {
    const int a = below(count);
    const int b = below(count);
    if (a != b) add(a, b);
  }
  return t;
}

}  // namespace rackrail::topology::test
