// Candidate rank pairs (RankLane), which trees may have as neighbours, and their routes.
//
// A pair is a candidate where one rank reaches the other without a third one in between
// (priced_paths.hpp). In networks of switches that is nearly every pair. Trees that use all pairs
// divide each link among very many, so each message is slow and others wait for it. So where pairs
// are many, only those within one host are used, and those of hosts whose numbers differ, in a
// ring, by a power of two. Paths between any two ranks then have as few arcs as in a hypercube.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/packing/priced_paths.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

struct RankLane {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::vector<std::uint32_t> routes;  ///< that were the cheapest at some prices
};

class RankLanes {
 public:
  /// With the cheapest routes at these prices, one per link. Keeps a reference.
  RankLanes(const topology::Topology& topology, const std::vector<double>& prices);

  /// Adds the routes that are cheapest at these prices.
  void find(const std::vector<double>& prices);

  const std::vector<RankLane>& lanes() const { return lanes_; }
  const std::vector<topology::Route>& routes() const { return paths_.routes(); }

  /// The fewest pairs in a row from a root to each rank, or back; kFar where there are none.
  const std::vector<std::uint32_t>& distances(std::uint32_t root, bool back);
  /// Ranks from which no other is further, either way, than so many times what the most central
  /// rank has it; none where ranks do not reach each other.
  std::vector<std::uint32_t> central_ranks(double times);

  static constexpr std::uint32_t kFar = 0xffffffff;

 private:
  void number_hosts();
  bool may_be_joined(std::uint32_t a, std::uint32_t b) const;
  void join(bool to_all);
  void add_routes();

  const topology::Topology& topology_;
  std::uint32_t ranks_;
  PricedPaths paths_;
  std::vector<std::uint32_t> host_of_;  // by rank
  std::uint32_t hosts_ = 0;
  std::vector<RankLane> lanes_;
  std::vector<std::uint32_t> lane_of_;               // by the two ranks
  std::vector<std::vector<std::uint32_t>> next_[2];  // by rank; the second in reverse direction
  std::vector<std::vector<std::uint32_t>> distances_[2];  // by root, where they were asked for
};

}  // namespace rackrail::planner
