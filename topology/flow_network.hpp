// Maximum flow on a network whose capacities change in place.
//
// Model. Directed arcs with integer capacities; each is stored with its reverse, so that a residual
// network needs no lookup. One structure serves many flows: `reset` puts all capacities back, and
// the arcs stay where they are.
//
// Method. Dinic (1970): breadth-first levels from the sink, then depth-first augmentation along
// arcs that descend one level, with a current arc per vertex; O(V²E) in general, close to linear on
// the shallow graphs of clusters. A flow may be capped: what is asked is mostly whether it reaches
// a value, not how far beyond it goes. Boost's push-relabel answers the same questions in the
// tests.
//
// Capacities are 128-bit for the bounds, which multiply bytes per second by bytes per second, and
// 64-bit where they count trees.
#pragma once

#include <cstdint>
#include <vector>

namespace rackrail::topology {

// GCC's and Clang's 128-bit integer; not ISO C++, hence the extension.
__extension__ using Capacity = __int128;

template <typename Capacity>
class BasicFlowNetwork {
 public:
  using Vertex = std::uint32_t;
  using Arc = std::uint32_t;

  explicit BasicFlowNetwork(std::size_t vertices);

  Vertex add_vertex();
  /// An arc and its reverse; the capacities are in force from the next `reset` on.
  Arc add_arc(Vertex from, Vertex to, Capacity forward, Capacity backward = 0);
  void set_capacity(Arc arc, Capacity forward);
  Capacity capacity(Arc arc) const { return arcs_[arc].capacity; }
  Vertex from(Arc arc) const { return arcs_[arc ^ 1U].to; }
  Vertex to(Arc arc) const { return arcs_[arc].to; }

  std::size_t vertex_count() const { return adjacent_.size(); }

  /// Forgets all flow.
  void reset();
  /// From now on remembers what augment() changes, for undo().
  void remember_flow() { remembers_flow_ = true; }
  /// As reset(), in O(length of the paths that were found); after remember_flow().
  void undo();
  /// Sets the capacity of an arc without flow, in force at once.
  void open_arc(Arc arc, Capacity forward);
  /// Flow through an arc on top of what flows already. Precondition: it has room for that.
  void send(Arc arc, Capacity units);
  /// Flow from source to sink on top of what flows already, at most `cap` of it.
  Capacity augment(Vertex source, Vertex sink, Capacity cap);
  /// Flow through an arc since the last `reset`.
  Capacity flow(Arc arc) const { return arcs_[arc].capacity - arcs_[arc].residual; }
  /// Vertices that the source still reaches: after an `augment` that ended below its cap, the
  /// source's side of a smallest cut.
  std::vector<bool> reachable_from(Vertex source) const;

 private:
  bool find_levels(Vertex source, Vertex sink);
  Capacity push(Vertex source, Vertex sink, Capacity limit);

  struct HalfArc {
    Vertex to;
    Capacity capacity;
    Capacity residual;
  };
  std::vector<HalfArc> arcs_;  // arc i and its reverse i ^ 1
  std::vector<std::vector<Arc>> adjacent_;
  std::vector<std::uint32_t> level_;  // distance to the sink
  std::vector<std::uint32_t> next_;   // current arc
  std::vector<Vertex> queue_;
  bool remembers_flow_ = false;
  std::vector<Arc> used_;  ///< since reset() or undo(), if it remembers
  std::vector<Arc> path_;
};

using FlowNetwork = BasicFlowNetwork<Capacity>;
using UnitFlowNetwork = BasicFlowNetwork<std::int64_t>;
extern template class BasicFlowNetwork<Capacity>;
extern template class BasicFlowNetwork<std::int64_t>;

}  // namespace rackrail::topology
