// A directed network whose capacities count trees: what the forest is built on.
//
// Model. Vertices are those of a topology: terminals, which every tree reaches, and switches, which
// only pass on what they receive. `roots` says how many trees start at each terminal. An arc's
// capacity is the number of trees that may use it. Every unit of capacity stands for a path through
// the topology: at first a single link, and after edge splitting a path of links.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "topology/queries.hpp"

namespace rackrail::planner {

using Vertex = std::uint32_t;

/// Units of an arc's capacity that take the same way: an index into LogicalNetwork::routes().
struct Strand {
  std::int64_t units = 0;
  std::uint32_t route = 0;
};

class LogicalNetwork {
 public:
  /// Arcs from, or to, one vertex: the other end, and the number of units.
  using Arcs = std::map<Vertex, std::int64_t>;

  LogicalNetwork(std::vector<std::int64_t> roots, std::vector<bool> is_terminal);

  std::size_t vertex_count() const { return roots_.size(); }
  std::int64_t roots(Vertex v) const { return roots_[v]; }
  bool is_switch(Vertex v) const { return !is_terminal_[v]; }
  /// Trees in all.
  std::int64_t tree_count() const { return tree_count_; }
  /// Ascending.
  const std::vector<Vertex>& terminals() const { return terminals_; }

  const Arcs& out_of(Vertex v) const { return out_[v]; }
  const Arcs& into(Vertex v) const { return in_[v]; }
  std::int64_t capacity(Vertex from, Vertex to) const;

  std::span<const Strand> strands(Vertex from, Vertex to) const;
  /// Links in the order in which the arcs were put together.
  const std::vector<topology::Route>& routes() const { return routes_; }

  /// A link as an arc. `from` and `to` differ and units are positive.
  void add_link(Vertex from, Vertex to, std::int64_t units, LinkId link);
  /// Takes units off an arc, at most what it has, and reports which paths they took.
  std::vector<Strand> take(Vertex from, Vertex to, std::int64_t units);
  /// The reverse of take().
  void give_back(Vertex from, Vertex to, Strand strand) { add(from, to, strand); }
  /// Units from→via→to become units from→to: `via` is passed by, not visited. `from` and `to`
  /// differ, both arcs have the units.
  void split(Vertex from, Vertex via, Vertex to, std::int64_t units);
  /// Drops all arcs of a vertex.
  void isolate(Vertex v);

 private:
  void add(Vertex from, Vertex to, Strand strand);
  std::uint32_t joined(std::uint32_t first, std::uint32_t second);
  static std::uint64_t key(Vertex from, Vertex to) {
    return (static_cast<std::uint64_t>(from) << 32U) | to;
  }

  std::vector<std::int64_t> roots_;
  std::vector<bool> is_terminal_;
  std::vector<Vertex> terminals_;
  std::int64_t tree_count_ = 0;
  std::vector<Arcs> out_;
  std::vector<Arcs> in_;
  std::unordered_map<std::uint64_t, std::vector<Strand>> strands_;
  std::vector<topology::Route> routes_;
  std::unordered_map<std::uint64_t, std::uint32_t> joined_;  // two routes, one after the other
};

}  // namespace rackrail::planner
