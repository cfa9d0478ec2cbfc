// What links still have to carry at least: of a simulation of which only a time below a limit is of
// interest, the rest need not be followed once some link cannot be done before that.
//
// Model. Bytes of messages that have not begun to move all have to pass the links of their routes
// from now on, one after the other; those of messages that have begun count as moved. So the end is
// no earlier than
//   now + max_l (bytes of l that have not begun − burst of l) / bandwidth of l.
// A schedule that lets its busiest link wait is given up when it has lost what the limit was above
// the bound at its start, instead of when the limit is over. Latencies, additions, codecs and
// overheads are left out, so of what is not bound by links nothing is given up sooner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/graph_index.hpp"
#include "sim/time.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

class WorkLeft {
 public:
  /// Links keep the topology's bandwidths. Flows may end early by `tolerance` of their time
  /// (max_min_network.hpp), by which links carry more than they can: by about twice the tolerance
  /// is taken off, as a flow that is quick at its end may lack more of its bytes than of its time.
  WorkLeft(const topology::Topology& topology, double tolerance);

  /// A collective of which nothing was sent yet. O(transfers).
  void add(const GraphIndex& index);
  /// A message begins to move.
  void begin(const RouteUse& route, std::int64_t bytes);
  /// No simulation takes less than this from now on; with a tolerance, none that was tried does.
  /// O(links).
  Time at_least() const;
  std::size_t link_count() const { return links_.size(); }

 private:
  struct Link {
    double bytes = 0;    ///< of messages that have not begun
    double at_once = 0;  ///< bytes of a burst
    double time_per_byte = 0;
  };
  std::vector<Link> links_;
};

}  // namespace rackrail::sim
