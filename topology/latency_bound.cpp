#include <algorithm>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "topology/queries.hpp"

namespace rackrail::topology {
namespace {

constexpr Duration kNever = Duration(INT64_MAX);

/// By vertex, over links of any kind but shared ones, which are resources of a machine (Dijkstra).
std::vector<Duration> latencies_from(const Topology& topology, NodeId source) {
  using Reached = std::pair<std::int64_t, std::size_t>;  // picoseconds, vertex
  std::vector<Duration> latency(topology.node_count(), kNever);
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue;
  latency[source.index()] = Duration();
  queue.emplace(0, source.index());
  while (!queue.empty()) {
    const auto [picoseconds, vertex] = queue.top();
    queue.pop();
    if (Duration(picoseconds) > latency[vertex]) {
      continue;
    }
    for (const LinkId id : topology.links_out_of(NodeId(vertex))) {
      const Link& link = topology.link(id);
      const Duration there = Duration(picoseconds) + link.latency;
      if (link.kind != LinkKind::kShared && there < latency[link.to.index()]) {
        latency[link.to.index()] = there;
        queue.emplace(there.picoseconds(), link.to.index());
      }
    }
  }
  return latency;
}

}  // namespace

Duration latency_bound(const Topology& topology) {
  Duration bound;
  Rank from(0);
  // The farthest rank, then the one that is the farthest from that, and so on.
  constexpr int kSweeps = 3;
  for (int sweep = 0; sweep < kSweeps && topology.rank_count() > 1; ++sweep) {
    const std::vector<Duration> latency = latencies_from(topology, topology.node_of(from));
    Rank farthest = from;
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      const Duration there = latency[topology.node_of(Rank(r)).index()];
      if (there != kNever && there > latency[topology.node_of(farthest).index()]) {
        farthest = Rank(r);
      }
    }
    bound = std::max(bound, latency[topology.node_of(farthest).index()]);
    from = farthest;
  }
  return bound;
}

}  // namespace rackrail::topology
