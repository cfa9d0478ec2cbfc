// The α–β model of a schedule: what it takes at least, as a closed form in its size.
//
// α: along the longest chain of dependencies every transfer needs at least the latency of its route
// and the addition's or codec's share of it, whatever its size. β: a link carries the bytes of all
// transfers over it one after the other. The larger of the two is a bound of any execution of the
// graph, and where nothing contends and slices pipeline, nearly what it takes (Hockney 1994; for
// the classical schedules the costs are those of Thakur, Rabenseifner, Gropp, "Optimization of
// Collective Communication Operations in MPICH", IJHPCA 2005). It takes O(transfers) once, so a
// planner can discard most candidates without simulating them.
//
// Where links let a burst pass at once (Link::burst), β is what an execution takes among many in a
// row: they are no faster on average than links fill buckets. One that finds the links idle may
// take less by the time of a burst.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/transfer_graph.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

struct AlphaBeta {
  Duration alpha;
  double seconds_per_element = 0;
  Duration rounding;                 ///< what unequal parts of a buffer may take off that
  Duration burst;                    ///< what the link lets pass at once after it was idle
  std::int64_t fewest_elements = 1;  ///< α holds from this size on: below, some chunks are empty

  /// No execution of a collective of `elements` floats takes less, of many in a row.
  Duration at_least(std::int64_t elements) const;
  /// Nor one alone less than this.
  Duration alone_at_least(std::int64_t elements) const;
};

/// By codec of the graph, the encoded bytes of one element among many; no range takes fewer.
std::vector<double> bytes_per_element(const TransferGraph& graph);

/// What a graph's transfers over one link occupy of it.
struct LinkLoad {
  LinkId link;
  double seconds_per_element = 0;
  Duration rounding;  ///< as in AlphaBeta
  Duration burst;

  /// No execution of a collective of `elements` floats keeps the link busy for less, of many in a
  /// row; nor one alone for less than this.
  Duration at_least(std::int64_t elements) const;
  Duration alone_at_least(std::int64_t elements) const;
};

/// Of all links that carry something, by number.
std::vector<LinkLoad> link_loads(const TransferGraph& graph, const topology::Topology& topology);

/// Of a graph whose transfers have pinned routes on this topology.
AlphaBeta alpha_beta(const TransferGraph& graph, const topology::Topology& topology);
/// The same, where link_loads() of the graph are known.
AlphaBeta alpha_beta(const TransferGraph& graph, const topology::Topology& topology,
                     std::span<const LinkLoad> loads);

}  // namespace rackrail::plan
