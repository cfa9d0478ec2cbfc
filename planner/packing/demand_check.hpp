// Whether the trees fit: Edmonds' condition, by max-flows.
//
// Trees exist, spanning all terminals, if and only if from a source with an arc of capacity
// roots(v) to every terminal v, each terminal can be sent as many units as there are trees (Edmonds
// 1973 without switches; with switches that have as much capacity in as out, Bang-Jensen, Frank and
// Jackson 1995). What falls short is measured, not only whether something does: taking g units off
// one path through a switch, or off one arc, takes at most g from any cut, so that exactly the
// deficit has to be given back.
//
// What flowed to a terminal that had enough is remembered where terminals are few, as little
// changes from one question to the next: it mostly fits again as it is, or all but one or two arcs
// of it, past which it is led.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "planner/packing/logical_network.hpp"
#include "topology/flow_network.hpp"

namespace rackrail::planner {

class DemandCheck {
 public:
  /// Looks at the terminals listed only, which may be a sample.
  DemandCheck(const LogicalNetwork& network, std::vector<Vertex> terminals);

  /// Adds units to an arc, or takes them off.
  void change(Vertex from, Vertex to, std::int64_t units);
  /// Trees that the worst terminal misses; the search ends where that is `enough` or more.
  std::int64_t deficit(std::int64_t enough);
  bool is_met() { return deficit(1) == 0; }

 private:
  struct ArcFlow {
    topology::UnitFlowNetwork::Arc arc = 0;
    std::int64_t units = 0;
  };

  void add(Vertex from, Vertex to, std::int64_t units);
  std::int64_t missing(Vertex terminal);
  bool fits_elsewhere(const std::vector<ArcFlow>& known);
  std::vector<ArcFlow> flows() const;

  topology::UnitFlowNetwork flow_;
  topology::UnitFlowNetwork::Vertex source_ = 0;
  std::int64_t demand_ = 0;
  std::unordered_map<std::uint64_t, topology::UnitFlowNetwork::Arc> arcs_;
  std::vector<topology::UnitFlowNetwork::Arc> all_arcs_;  ///< those of the source, too
  std::vector<std::vector<ArcFlow>> known_;  ///< by terminal: a flow of the demand, once there was
  std::vector<Vertex> terminals_;            // those that fell short last come first
};

}  // namespace rackrail::planner
