// What every schedule family does: transfers with pinned routes, each pair's route stored once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/schedule_family.hpp"
#include "planner/schedules/balanced_routes.hpp"

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

/// The member of a group that a line of members goes through: groups of several sizes have as many
/// lines, more than members.
Rank member_on_line(const topology::RankGroup& group, std::size_t line);

/// The number of each rank's group in tier_groups().
std::vector<std::uint32_t> tier_group_by_rank(const topology::Topology& topology);

/// Ranks in an order in which neighbours are near: by rack, then by host, then by socket, PCIe
/// switch and NIC, then by number.
std::vector<Rank> near_order(const topology::Topology& topology);

/// Of schedules in which each of n parts goes to, and comes back from, all other ranks one by one.
GraphSize exchange_size(std::uint64_t ranks);

/// Whether a codec may be applied again at every hop: FP32 and FP16 may, 8-bit blocks and top-k
/// would add their error at each of them.
bool survives_many_hops(const plan::Codec& codec);
/// The refusal of a family whose partial sums take many hops, if a codec does not survive them.
std::optional<std::string> refuse_lossy_hops(const TierCodecs& codecs);
/// The same, or that of a single rank.
std::optional<std::string> refuse_exchange(const topology::Topology& topology,
                                           const TierCodecs& codecs);
/// The refusal of a family that needs groups (tier_groups), one of them of several ranks.
std::optional<std::string> refuse_no_tiers(const std::vector<topology::RankGroup>& groups);
/// The refusal of a family that needs groups (tier_groups) of one size, more than one rank each.
std::optional<std::string> refuse_uneven_groups(const topology::Topology& topology);

#define RACKRAIL_REGISTER(family) std::unique_ptr<ScheduleFamily> make_##family();
#include "planner/schedules/families.def"
#undef RACKRAIL_REGISTER

}  // namespace rackrail::planner
