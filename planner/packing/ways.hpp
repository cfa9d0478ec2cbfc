// Cheapest paths between ranks at prices of links, over switches but past no other rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "planner/packing/arborescence.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

class RankWays {
 public:
  /// Keeps references to both; routes that are found are added to `routes`, each once.
  RankWays(const topology::Topology& topology, std::vector<topology::Route>& routes)
      : topology_(topology),
        routes_(routes),
        routes_of_(topology.rank_count() * topology.rank_count()) {}

  /// Afterwards arcs() are one path for each pair of ranks of which one reaches the other past no
  /// third. Prices, by link, are not negative.
  void find(const std::vector<double>& prices);

  /// From now on only paths from some ranks to some others are found: those set at from · ranks +
  /// to.
  void find_only(std::vector<bool> pairs) { only_ = std::move(pairs); }

  const std::vector<PricedArc>& arcs() const { return arcs_; }
  /// Index into the routes of each arc.
  std::uint32_t route_of(std::size_t arc) const { return route_of_[arc]; }

 private:
  void find_from(Rank source, const std::vector<double>& prices);
  void add(Rank from, Rank to, double price);
  std::uint32_t number_of_route(Rank from, Rank to);

  const topology::Topology& topology_;
  std::vector<topology::Route>& routes_;
  std::vector<bool> only_;                             // by pair of ranks; empty: all
  std::vector<std::vector<std::uint32_t>> routes_of_;  // by pair of ranks
  std::vector<PricedArc> arcs_;
  std::vector<std::uint32_t> route_of_;
  // Of one search, by vertex: how it is reached.
  using Reached = std::tuple<double, std::size_t, std::uint32_t>;  // price, links, vertex
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue_;
  std::vector<double> price_;
  std::vector<LinkId> last_;
  std::vector<char> is_done_;
  topology::Route route_;
};

}  // namespace rackrail::planner
