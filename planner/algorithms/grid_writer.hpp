// Writes collectives along rings of groups within rings of groups (group_grids.hpp), hop by hop.
//
// What goes along the rings are parcels: parts of every group's data that the members of one line
// carry. Parcels of one turn set out together, those of later turns follow. At a hop of stage d,
// along the rings of side d, a group passes on what it has of a block of groups: as many as the
// sides before d have together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/algorithms/group_grids.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

struct GridParcel {
  std::size_t line = 0;                ///< whose members carry it
  std::size_t owner = 0;               ///< the line whose members own it
  std::size_t turn = 0;                ///< turns count from 0 on
  std::vector<std::uint32_t> weights;  ///< by group
};

/// Groups [begin, begin + count) in the order of their ring.
struct GridSpan {
  std::size_t begin = 0;
  std::size_t count = 1;
};

/// For an all-gather: lend(), then gather_hop() stage by stage from the innermost, hop by hop. For
/// a reduce-scatter: sum_inside(0), reduce_hop() stage by stage from the outermost (each of its
/// hops after the sums inside of the next one), give_back(). For an all-reduce both, the sums
/// first.
class GridWriter {
 public:
  /// Parcels by turn.
  GridWriter(plan::Collective what, const ScheduleRequest& request, const GridSides& sides,
             std::vector<GridParcel> parcels, RingWays ways);

  /// Reductions: sums inside groups, of which those of hop 0 come first, those of the last one, of
  /// what groups keep of the outermost stage, before its last hop.
  void sum_inside(std::size_t hop);
  void reduce_hop(std::size_t stage, std::size_t hop);
  /// From who carried it to who owns it.
  void give_back();

  /// Copies: from who owns it to who carries it, then hops, one more than there are, as what came
  /// by the last one is copied inside groups then.
  void lend();
  void gather_hop(std::size_t stage, std::size_t hop);

  plan::TransferGraph take();

 private:
  using Ids = std::vector<TransferId>;
  using Range = GraphBuilder::Range;

  Rank holder(std::size_t group, std::size_t line) const {
    return member_on_line(groups_[group], line);
  }
  Range range(std::size_t parcel, GridSpan owners) const;
  /// What the line's member of a group has of an owner's part of a parcel waits for these.
  Ids& here(std::size_t group, std::size_t parcel, std::size_t owner) {
    return here_[(group * parcels_.size() + parcel) * groups_.size() + owner];
  }
  std::vector<std::uint32_t> weights() const;
  std::vector<Rank> owners() const;
  Ids here(std::size_t group, std::size_t parcel, GridSpan owners);
  std::size_t after(std::size_t group, std::size_t stage, std::size_t hops, std::size_t turn) const;
  GridSpan block_of(std::size_t group, std::size_t stage) const;
  GridSpan reduced(std::size_t group, std::size_t stage, std::size_t hop, std::size_t turn) const;
  GridSpan copied(std::size_t group, std::size_t stage, std::size_t hop, std::size_t turn) const;
  std::vector<GridSpan> first_parts(GridSpan block, std::size_t turn, bool is_first) const;
  std::vector<GridSpan> last_parts(GridSpan block, std::size_t turn, bool is_last) const;
  void sum_inside(std::size_t group, std::size_t turn, GridSpan owners);
  void copy_inside(std::size_t group, std::size_t turn, GridSpan owners);
  void pass_on(plan::TransferOp op, std::size_t group, std::size_t next, std::size_t turn,
               GridSpan owners);
  void send(plan::TransferOp op, std::size_t from, std::size_t to, std::size_t parcel,
            GridSpan owners);

  RingWays ways_;
  GridSides sides_;
  std::vector<std::size_t> strides_;  ///< by side: groups of a block
  std::vector<topology::RankGroup> groups_;
  std::vector<GridParcel> parcels_;
  std::vector<std::vector<std::size_t>> by_turn_;  ///< parcels
  // By turn: of how many groups each.
  std::vector<std::vector<std::size_t>> first_parts_;
  std::vector<std::vector<std::size_t>> last_parts_;
  GraphBuilder builder_;
  std::vector<Ids> here_;       ///< by group, parcel and owner
  std::vector<Ids> passed_on_;  ///< by rank and turn
};

/// By turn, how many parts there are of the first and last blocks, beyond one of each.
std::vector<std::size_t> more_grid_parts(plan::Collective what, const GridSides& sides,
                                         std::size_t turns);

}  // namespace rackrail::planner
