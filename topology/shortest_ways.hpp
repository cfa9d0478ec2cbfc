// Shortest paths between ranks, of which there may be several: Router chooses from them.
//
// Model. The cost of a route is (ranks passed through, latency, links), compared in this order; by
// Distance::kHops, latency is that of links inside machines alone. A rank in the middle counts in
// the first place. So a route uses one only where there is no other path, and then as few as
// possible; the machines of a ring or torus thereby reach each other too.
//
// Per root: Dijkstra gives the cost of every vertex, as far as it is needed. It stops near the
// destination and resumes when a farther one is asked for. Near means: no remaining vertex could
// lead to the destination at as low a cost as the best known path, given the least cost of the last
// links through the destination's machine. So the insides of other machines at the same distance,
// which are most of a large cluster, are never examined. An arc (u, v) is tight when cost(u) + its
// own cost = cost(v); the tight arcs form a DAG that holds all shortest routes. Vertices leave the
// heap in a topological order of it, since every arc adds a link; so `width`, the best bottleneck
// among the shortest routes, is found in the same pass. The root is the source, or the switch
// behind it where there is only one link out: then hosts of one switch share the work.
//
// The paths of a pair are the tight arcs that lead to its destination and keep its width, found
// from there backwards.
//
// Cost: O(E log V) per root for the part that is looked at, O(machine) and O(links · in-degree) per
// destination. Labels take memory by pages, as they are reached; kMostKept bounds what they could
// take.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::topology {

/// Of a path.
struct WayCost {
  bool is_reached = false;
  std::uint32_t ranks = 0;
  std::uint32_t entered = 0;  ///< machines; by hops only
  std::uint32_t links = 0;
  Duration latency;  ///< of those links whose latency counts

  auto key() const { return std::tuple(!is_reached, ranks, entered, latency, links); }
  bool operator==(const WayCost& o) const { return key() == o.key(); }
  bool operator<(const WayCost& o) const { return key() < o.key(); }
};

/// Of a vertex: the cost of the shortest paths to it, and the best bottleneck among them.
struct WayLabel {
  WayCost cost;
  Bandwidth width;
};

class ShortestWays;

/// What is known of the paths from one vertex.
struct WayExploration;

/// The shortest paths of a pair of ranks: from `root` to `end`, with `way_out` before them where
/// `root` is the switch behind the source. Valid during the lifetime of the ShortestWays that found
/// them, which may search for others meanwhile.
class PairWays {
 public:
  NodeId root;
  NodeId end;
  std::optional<LinkId> way_out;
  Bandwidth width;

  /// Of a vertex on the paths.
  WayLabel label(NodeId vertex) const;
  /// Tight links into a vertex on the paths that keep the width, in order of their ids.
  std::vector<LinkId> links_into(NodeId vertex) const;

 private:
  friend class ShortestWays;
  const ShortestWays* search_ = nullptr;
  std::shared_ptr<const WayExploration> found_;  ///< of `root`
  std::unordered_map<NodeId, WayLabel> inside_;  ///< of the destination's machine
};

class ShortestWays {
 public:
  /// The topology must outlive it.
  ShortestWays(const Topology& topology, Distance distance);
  ~ShortestWays();
  ShortestWays(const ShortestWays&) = delete;
  ShortestWays& operator=(const ShortestWays&) = delete;

  /// Of two different ranks. Nothing for a rank and itself. Throws ConfigError where there is no
  /// way.
  std::optional<PairWays> find(Rank src, Rank dst);

 private:
  friend class PairWays;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::topology
