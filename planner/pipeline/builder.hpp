// What every schedule family does: transfers with pinned routes, each pair's route stored once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/regular_schedule.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/pipeline/balanced_routes.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

/// Adding a transfer is a step of work (base/work.hpp).
class GraphBuilder {
 public:
  GraphBuilder(std::string name, const ScheduleRequest& request,
               std::vector<std::uint32_t> chunk_weights,
               plan::Collective collective = plan::Collective::kAllReduce);

  /// A range of chunks: the first one and how many.
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t count = 1;
  };
  /// The codec is the request's for the tier of the pair (inside a group or across groups).
  TransferId reduce(Rank src, Rank dst, Range range, std::span<const TransferId> after);
  TransferId copy(Rank src, Rank dst, Range range, std::span<const TransferId> after);

  /// On a route of its own, no faster than the rate (0: no limit), which is the same whenever the
  /// route is.
  TransferId add(plan::TransferOp op, Rank src, Rank dst, Range range,
                 std::span<const TransferId> after, const topology::Route& route,
                 Bandwidth rate = {});

  /// One operation of the switches (plan::TransferGraph::add_group).
  void group(TransferId first, std::uint32_t count) { graph_.add_group(first, count); }
  void mutual_sum(TransferId first, std::uint32_t count) { graph_.add_mutual_sum(first, count); }
  /// Finds the route of a pair before it is needed: those from one rank one after the other cost
  /// the least (topology/router.cpp).
  void find_route(Rank src, Rank dst) { route(src, dst); }

  /// All transfers of a schedule over as many chunks of equal weight.
  void add_all(const plan::RegularSchedule& schedule);

  /// With the routes of pairs balanced (balanced_routes.hpp), where the router hashes equal ones.
  plan::TransferGraph take();
  /// The same of any collective: with the rank that owns each chunk, which an all-reduce has no use
  /// for.
  plan::TransferGraph take(std::vector<Rank> owners);

 private:
  TransferId add(plan::TransferOp op, Rank src, Rank dst, Range range,
                 std::span<const TransferId> after, RouteId route);
  RouteId route(Rank src, Rank dst);

  ScheduleRequest request_;
  std::size_t added_ = 0;
  plan::TransferGraph graph_;
  std::vector<std::uint32_t> group_of_;
  std::uint8_t inside_ = 0;
  std::uint8_t across_ = 0;
  std::unordered_map<std::uint64_t, RouteId> routes_;
  std::vector<RoutedPair> pairs_;  ///< those of routes_, in their order
  std::map<std::pair<topology::Route, Bandwidth>, RouteId> own_routes_;
};

/// A schedule given by formulas as a graph.
plan::TransferGraph build(const plan::RegularSchedule& schedule, const ScheduleRequest& request);

}  // namespace rackrail::planner
