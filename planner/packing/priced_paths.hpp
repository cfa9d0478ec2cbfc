// Cheapest paths at prices of links, between the vertices at which trees may part.
//
// These vertices are the ranks, in their order, and behind them, if they are asked for, the
// switches that multicast, or reduce. Paths pass other switches, but no third one of them
// (Dijkstra from each). A tree over such paths from a rank is what is passed on and copied, or,
// `reversed`, what is added and passed on, seen from where the sum ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "planner/packing/arborescence.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

class PricedPaths {
 public:
  enum class Over : std::uint8_t { kRanks, kRanksAndSwitches };

  /// Keeps a reference.
  explicit PricedPaths(const topology::Topology& topology, Over over = Over::kRanks,
                       bool reversed = false);

  bool is_reversed() const { return is_reversed_; }
  std::size_t size() const { return vertices_.size(); }

  /// Afterwards arcs() are one path for each pair of vertices of which one reaches the other past
  /// no third. Prices, by link, are not negative.
  void find(const std::vector<double>& prices);
  /// From now on only paths from some vertices to some others are found: those set at from · size()
  /// + to.
  void find_only(std::vector<bool> pairs) { only_ = std::move(pairs); }

  const std::vector<PricedArc>& arcs() const { return arcs_; }
  /// Index into the routes of each arc.
  std::uint32_t route_of(std::size_t arc) const { return route_of_[arc]; }
  /// All that were found so far, each once, away from the root.
  const std::vector<topology::Route>& routes() const { return routes_; }

 private:
  static constexpr std::uint32_t kPassed = 0xffffffff;

  void find_from(std::uint32_t source, const std::vector<double>& prices);
  std::uint32_t number_of_route(std::uint32_t from, std::uint32_t to);
  NodeId near(LinkId link) const;
  NodeId far(LinkId link) const;

  const topology::Topology& topology_;
  bool is_reversed_;
  std::vector<NodeId> vertices_;
  std::vector<std::uint32_t> number_;  ///< by node: its vertex, or kPassed
  std::vector<topology::Route> routes_;
  std::unordered_map<std::size_t, std::vector<std::uint32_t>> routes_of_;  ///< by pair of vertices
  std::vector<bool> only_;  ///< by pair of vertices; empty: all
  std::vector<PricedArc> arcs_;
  std::vector<std::uint32_t> route_of_;
  // Of one search, by node: how it is reached.
  using Reached = std::tuple<double, std::size_t, std::uint32_t>;  // price, links, node
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue_;
  std::vector<double> price_;
  std::vector<LinkId> last_;
  std::vector<char> is_done_;
  topology::Route route_;
};

}  // namespace rackrail::planner
