#include "topology/flow_network.hpp"

#include <algorithm>
#include <limits>

namespace rackrail::topology {

namespace {
constexpr std::uint32_t kUnreached = std::numeric_limits<std::uint32_t>::max();
}

template <typename Capacity>
BasicFlowNetwork<Capacity>::BasicFlowNetwork(std::size_t vertices) : adjacent_(vertices) {}

template <typename Capacity>
typename BasicFlowNetwork<Capacity>::Vertex BasicFlowNetwork<Capacity>::add_vertex() {
  adjacent_.emplace_back();
  return static_cast<Vertex>(adjacent_.size() - 1);
}

template <typename Capacity>
typename BasicFlowNetwork<Capacity>::Arc BasicFlowNetwork<Capacity>::add_arc(Vertex from, Vertex to,
                                                                             Capacity forward,
                                                                             Capacity backward) {
  const Arc arc = static_cast<Arc>(arcs_.size());
  arcs_.push_back({to, forward, 0});
  arcs_.push_back({from, backward, 0});
  adjacent_[from].push_back(arc);
  adjacent_[to].push_back(arc + 1);
  return arc;
}

template <typename Capacity>
void BasicFlowNetwork<Capacity>::set_capacity(Arc arc, Capacity forward) {
  arcs_[arc].capacity = forward;
}

template <typename Capacity>
void BasicFlowNetwork<Capacity>::reset() {
  for (HalfArc& arc : arcs_) arc.residual = arc.capacity;
  used_.clear();
}

template <typename Capacity>
void BasicFlowNetwork<Capacity>::undo() {
  for (const Arc arc : used_) {
    arcs_[arc].residual = arcs_[arc].capacity;
    arcs_[arc ^ 1U].residual = arcs_[arc ^ 1U].capacity;
  }
  used_.clear();
}

template <typename Capacity>
void BasicFlowNetwork<Capacity>::open_arc(Arc arc, Capacity forward) {
  arcs_[arc].capacity = forward;
  arcs_[arc].residual = forward;
}

template <typename Capacity>
void BasicFlowNetwork<Capacity>::send(Arc arc, Capacity units) {
  arcs_[arc].residual -= units;
  arcs_[arc ^ 1U].residual += units;
  if (remembers_flow_) used_.push_back(arc);
}

template <typename Capacity>
bool BasicFlowNetwork<Capacity>::find_levels(Vertex source, Vertex sink) {
  level_.assign(adjacent_.size(), kUnreached);
  next_.assign(adjacent_.size(), 0);
  queue_.clear();
  queue_.push_back(sink);
  level_[sink] = 0;
  for (std::size_t i = 0; i < queue_.size() && level_[source] == kUnreached; ++i) {
    const Vertex v = queue_[i];
    for (const Arc arc : adjacent_[v]) {
      const Vertex u = arcs_[arc].to;
      if (level_[u] == kUnreached && arcs_[arc ^ 1U].residual > 0) {
        level_[u] = level_[v] + 1;
        queue_.push_back(u);
      }
    }
  }
  return level_[source] != kUnreached;
}

/// One augmenting path that descends the levels; 0 when there is none left.
template <typename Capacity>
Capacity BasicFlowNetwork<Capacity>::push(Vertex source, Vertex sink, Capacity limit) {
  path_.clear();
  for (Vertex v = source; v != sink;) {
    std::uint32_t& next = next_[v];
    const std::vector<Arc>& arcs = adjacent_[v];
    while (next < arcs.size()) {
      const HalfArc& arc = arcs_[arcs[next]];
      if (arc.residual > 0 && level_[arc.to] != kUnreached && level_[arc.to] + 1 == level_[v])
        break;
      ++next;
    }
    if (next < arcs.size()) {
      path_.push_back(arcs[next]);
      v = arcs_[arcs[next]].to;
    } else if (path_.empty()) {
      return 0;
    } else {
      v = arcs_[path_.back() ^ 1U].to;  // a dead end: back, and past the arc that led here
      path_.pop_back();
      ++next_[v];
    }
  }
  Capacity amount = limit;
  for (const Arc arc : path_) amount = std::min(amount, arcs_[arc].residual);
  for (const Arc arc : path_) {
    arcs_[arc].residual -= amount;
    arcs_[arc ^ 1U].residual += amount;
  }
  if (remembers_flow_) used_.insert(used_.end(), path_.begin(), path_.end());
  return amount;
}

template <typename Capacity>
Capacity BasicFlowNetwork<Capacity>::augment(Vertex source, Vertex sink, Capacity cap) {
  Capacity flow = 0;
  while (flow < cap && find_levels(source, sink)) {
    while (flow < cap) {
      const Capacity amount = push(source, sink, cap - flow);
      if (amount == 0) break;
      flow += amount;
    }
  }
  return flow;
}

template <typename Capacity>
std::vector<bool> BasicFlowNetwork<Capacity>::reachable_from(Vertex source) const {
  std::vector<bool> reached(adjacent_.size());
  std::vector<Vertex> open{source};
  reached[source] = true;
  while (!open.empty()) {
    const Vertex v = open.back();
    open.pop_back();
    for (const Arc arc : adjacent_[v]) {
      if (arcs_[arc].residual > 0 && !reached[arcs_[arc].to]) {
        reached[arcs_[arc].to] = true;
        open.push_back(arcs_[arc].to);
      }
    }
  }
  return reached;
}

template class BasicFlowNetwork<Capacity>;
template class BasicFlowNetwork<std::int64_t>;

}  // namespace rackrail::topology
