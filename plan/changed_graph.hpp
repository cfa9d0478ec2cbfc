// Graphs that differ from others in codecs, routes and rates only: who sends what to whom, and
// after what, stays as it is.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan {

struct RatedRoute {
  std::vector<LinkId> links;
  Bandwidth rate;  ///< 0: no limit
};

/// The routes of a graph, in its order.
std::vector<RatedRoute> rated_routes(const TransferGraph& graph);

/// `graph` over other routes: routes[i] stands for its route i. Throws PlanError for a negative
/// rate and where there are not as many as it has. O(transfers).
TransferGraph with_routes(const TransferGraph& graph, std::vector<RatedRoute> routes);

/// The same with other codecs, too: each transfer gets the one whose index in `codecs` is
/// codec_of(transfer).
TransferGraph with_codecs_and_routes(const TransferGraph& graph, std::span<const Codec> codecs,
                                     const std::function<std::uint8_t(const Transfer&)>& codec_of,
                                     std::vector<RatedRoute> routes);

/// `graph` with a route for each transfer: route_of[i] is the index in `routes` of what transfer i
/// takes. Those that none takes are left out. Throws PlanError for a negative rate and where there
/// are not as many as transfers. O(transfers).
TransferGraph with_transfers_over(const TransferGraph& graph, std::span<const RatedRoute> routes,
                                  std::span<const std::uint32_t> route_of);

}  // namespace rackrail::plan
