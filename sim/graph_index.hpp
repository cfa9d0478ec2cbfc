// A schedule prepared for interpretation: who waits for whom, in which order transfers leave a
// rank, which encoding each lossy transfer sends, and over which links it goes. Made once per
// (schedule, elements, slice size).
//
// A transfer is named by its send queue (Lane) and its position there. A send queue holds the
// transfers of a (src, dst) pair and route, in the order in which they leave. Arrays are laid out
// in this order too, so that what the interpreter touches next is beside what it touched last.
//
// What does not depend on sizes, which is nearly all of it, is the layout: buckets of a plan that
// follow one schedule share it (graph_indexer.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/encoding_source.hpp"
#include "plan/regular_schedule.hpp"
#include "plan/transfer_graph.hpp"
#include "sim/routing.hpp"

namespace rackrail::sim {

using Lane = plan::RegularSchedule::Lane;
using Place = plan::RegularSchedule::Place;
using Dependent = plan::RegularSchedule::Dependent;

/// How the transfers of a send queue (Lane) move: on their own, or as members of operations of
/// switches (plan/in_network.hpp).
enum class LaneKind : std::uint8_t { kOwn, kMulticast, kReduction };

inline constexpr std::uint32_t kNoGroup = UINT32_MAX;

/// One transfer; those that move nothing are left out.
struct Item {
  std::int64_t elements = 0;
  std::uint32_t slices = 0;
  std::uint32_t first_slice = 0;       ///< index of slice 0 in arrays over all slices
  std::uint32_t route = 0;             ///< index into GraphIndex::routes; of a group, its tree
  std::uint32_t waits = 0;             ///< dependencies of each slice
  std::uint32_t additions_before = 0;  ///< additions at its receiver that must be applied first
  Place encoded_by;                    ///< kShared: the transfer that encodes
  std::uint32_t group = kNoGroup;      ///< index into GraphIndex::groups
  plan::EncodingKind encoding = plan::EncodingKind::kOwn;
  plan::TransferOp op = plan::TransferOp::kCopy;
  std::uint8_t codec = 0;
};

/// What the indices of a schedule have in common.
class GraphLayout {
 public:
  std::span<const std::uint32_t> lanes_from(Rank rank) const {
    return std::span(lanes_from_)
        .subspan(lanes_from_begin_[rank.index()],
                 lanes_from_begin_[rank.index() + 1] - lanes_from_begin_[rank.index()]);
  }
  /// Call once all send queues are known.
  void sort_lanes_by_source(std::size_t ranks);

  std::vector<Lane> lanes;
  std::vector<LaneKind> lane_kinds;  ///< by send queue; empty where all move on their own
  /// By send queue, of a folded schedule (layout_turns.hpp): who receives from its sender in the
  /// full schedule, which tells channels apart. Empty elsewhere, where that is Lane::dst.
  std::vector<Rank> receivers;
  /// Transfers that are one operation. The first of them represents it: its additions are those of
  /// all. The operation also has its place in the send queues of the others.
  std::vector<std::vector<Place>> groups;
  std::vector<RouteUse> routes;
  /// By route, of a folded schedule: route_number() of the route it was. Empty elsewhere.
  std::vector<std::uint32_t> route_numbers;
  std::vector<plan::Codec> codecs;
  bool orders_additions = false;  ///< whether any Item::additions_before is not 0
  bool has_connections = false;   ///< each send queue is a channel of its own

 private:
  std::vector<std::uint32_t> lanes_from_begin_;
  std::vector<std::uint32_t> lanes_from_;
};

class GraphIndex {
 public:
  virtual ~GraphIndex() = default;
  GraphIndex(const GraphIndex&) = delete;
  GraphIndex& operator=(const GraphIndex&) = delete;

  /// Into `item`, and not returned: the interpreter asks some million times a second, and filled in
  /// place it need not be copied.
  virtual void get(Place place, Item& item) const = 0;
  Item item(Place place) const {
    Item result;
    get(place, result);
    return result;
  }
  /// Those that wait for this one to be read (`at_source`) or applied. `scratch` may hold them.
  virtual std::span<const Dependent> dependents(Place place, bool at_source,
                                                std::vector<Dependent>& scratch) const = 0;
  /// Additions that may be applied after this one.
  virtual std::span<const Dependent> next_additions(Place place,
                                                    std::vector<Dependent>& scratch) const = 0;
  /// What a transfer waits for in vain, as its sender neither sends nor receives it and is not
  /// told: only in schedules that are wrong.
  virtual std::vector<Place> unseen(Place /*place*/) const { return {}; }
  /// "transfer 7 (rank 0 to rank 1)", with its number in the schedule it was made from.
  std::string describe(Place place) const;
  std::span<const std::uint32_t> lanes_from(Rank rank) const { return layout_->lanes_from(rank); }

  // Of the layout.
  const std::vector<Lane>& lanes;
  const std::vector<LaneKind>& lane_kinds;
  const std::vector<Rank>& receivers;
  const std::vector<std::vector<Place>>& groups;
  const std::vector<RouteUse>& routes;
  const std::vector<std::uint32_t>& route_numbers;
  const std::vector<plan::Codec>& codecs;
  const std::vector<plan::CodecEffort> efforts;  ///< of these
  const bool orders_additions;
  const bool has_connections;

  std::vector<std::uint32_t> slices_at;  ///< by rank: slices it sends and receives
  std::int64_t slice_elements = 0;
  std::uint32_t slice_count = 0;
  bool has_partial_waits = false;  ///< whether something waits for all of several slices

 protected:
  explicit GraphIndex(std::shared_ptr<const GraphLayout> layout);
  /// Its number in the schedule that the index was made from.
  virtual std::string original(Place place) const = 0;

 private:
  std::shared_ptr<const GraphLayout> layout_;
};

/// Keeps nothing of `graph`. Throws SimulationError when there are more than 2³² slices, what
/// Routing::route() throws, and PlanError for slices of no elements.
std::shared_ptr<const GraphIndex> index_graph(const plan::TransferGraph& graph,
                                              std::int64_t elements, std::int64_t slice_elements,
                                              Routing& routing);

/// `routes` are those of the send queues; the schedule must outlive the index. Throws
/// SimulationError when there are more than 2³² slices.
std::unique_ptr<const GraphIndex> index_schedule(const plan::RegularSchedule& schedule,
                                                 std::int64_t elements, std::int64_t slice_elements,
                                                 std::vector<RouteUse> routes);

}  // namespace rackrail::sim
