#include "planner/algorithms/grid_writer.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::planner {

namespace {

// Times a part that is summed or copied, what is sent before it, or after it. Sums are in fewer
// parts, as each costs a device an addition.
constexpr std::size_t kBeforeASum = 2;
constexpr std::size_t kAfterACopy = 4;

/// By turn, of how many groups each the first blocks are summed at a time: of ever more, in
/// proportion to what a NIC sends meanwhile, as boxes sum only little faster than that.
std::vector<std::vector<std::size_t>> growing_parts(std::size_t turns, std::size_t groups,
                                                    std::size_t times) {
  std::vector<std::vector<std::size_t>> parts(turns);
  std::size_t before = 0;
  for (auto& of_turn : parts) {
    for (std::size_t left = groups; left > 0; left -= of_turn.back()) {
      const std::size_t size = std::max<std::size_t>(1, before / times);
      of_turn.push_back(left < size + size / 2 ? left : size);
      before += of_turn.back();
    }
  }
  return parts;
}

/// The same backwards, of the last blocks that are copied.
std::vector<std::vector<std::size_t>> shrinking_parts(std::size_t turns, std::size_t groups,
                                                      std::size_t times) {
  std::vector<std::vector<std::size_t>> parts = growing_parts(turns, groups, times);
  std::ranges::reverse(parts);
  for (auto& of_turn : parts) {
    std::ranges::reverse(of_turn);
  }
  return parts;
}

std::vector<GridSpan> in_parts(GridSpan block, const std::vector<std::size_t>& sizes) {
  std::vector<GridSpan> parts;
  for (const std::size_t size : sizes) {
    parts.push_back({block.begin, size});
    block.begin += size;
  }
  return parts;
}

std::vector<std::vector<std::size_t>> parcels_by_turn(const std::vector<GridParcel>& parcels) {
  std::vector<std::vector<std::size_t>> by_turn;
  for (std::size_t p = 0; p < parcels.size(); ++p) {
    by_turn.resize(std::max(by_turn.size(), parcels[p].turn + 1));
    by_turn[parcels[p].turn].push_back(p);
  }
  return by_turn;
}

}  // namespace

GridWriter::GridWriter(plan::Collective what, const ScheduleRequest& request,
                       const GridSides& sides, std::vector<GridParcel> parcels, RingWays ways)
    : ways_(ways),
      sides_(sides),
      groups_(ring_of_groups(request.topology)),
      parcels_(std::move(parcels)),
      by_turn_(parcels_by_turn(parcels_)),
      builder_("hierarchical", request, weights(), what),
      here_(groups_.size() * parcels_.size() * groups_.size()),
      passed_on_(request.topology.rank_count() * by_turn_.size()) {
  std::size_t stride = 1;
  for (const std::size_t side : sides) {
    strides_.push_back(stride);
    stride *= side;
  }
  first_parts_ = growing_parts(by_turn_.size(), strides_.back(), kBeforeASum);
  last_parts_ = shrinking_parts(by_turn_.size(), strides_.back(), kAfterACopy);
}

/// By parcel and group, so that blocks are ranges.
std::vector<std::uint32_t> GridWriter::weights() const {
  std::vector<std::uint32_t> weights;
  for (const GridParcel& parcel : parcels_) {
    weights.insert(weights.end(), parcel.weights.begin(), parcel.weights.end());
  }
  return weights;
}

std::vector<Rank> GridWriter::owners() const {
  std::vector<Rank> owners;
  for (const GridParcel& parcel : parcels_) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      owners.push_back(holder(g, parcel.owner));
    }
  }
  return owners;
}

plan::TransferGraph GridWriter::take() { return builder_.take(owners()); }

GridWriter::Range GridWriter::range(std::size_t parcel, GridSpan owners) const {
  return {static_cast<std::uint32_t>(parcel * groups_.size() + owners.begin),
          static_cast<std::uint32_t>(owners.count)};
}

GridWriter::Ids GridWriter::here(std::size_t group, std::size_t parcel, GridSpan owners) {
  Ids ids;
  for (std::size_t owner = owners.begin; owner < owners.begin + owners.count; ++owner) {
    const Ids& more = here(group, parcel, owner);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  return ids;
}

/// The group so many hops, at most one round, further along the stage's ring of a turn.
std::size_t GridWriter::after(std::size_t group, std::size_t stage, std::size_t hops,
                              std::size_t turn) const {
  const std::size_t side = sides_[stage];
  const std::size_t at = group / strides_[stage] % side;
  const bool is_back = ways_ == RingWays::kBoth && turn % 2 == 1;
  const std::size_t to = (is_back ? at + side - hops : at + hops) % side;
  return group + to * strides_[stage] - at * strides_[stage];
}

/// What a group has of the stage's blocks when it has but one.
GridSpan GridWriter::block_of(std::size_t group, std::size_t stage) const {
  const std::size_t count = strides_[stage];
  return {group / count * count, count};
}

/// What a group passes on at a hop of a stage of the reduction; after the last hop what it keeps.
GridSpan GridWriter::reduced(std::size_t group, std::size_t stage, std::size_t hop,
                             std::size_t turn) const {
  return block_of(after(group, stage, sides_[stage] - 1 - hop, turn), stage);
}

/// The same of the copies; after the last hop what it has got then.
GridSpan GridWriter::copied(std::size_t group, std::size_t stage, std::size_t hop,
                            std::size_t turn) const {
  return block_of(after(group, stage, sides_[stage] - hop, turn), stage);
}

/// A block of the outermost rings in the parts in which it is summed first, or copied last, where
/// it is that; else all of it.
std::vector<GridSpan> GridWriter::first_parts(GridSpan block, std::size_t turn,
                                              bool is_first) const {
  return is_first ? in_parts(block, first_parts_[turn]) : std::vector<GridSpan>{block};
}
std::vector<GridSpan> GridWriter::last_parts(GridSpan block, std::size_t turn, bool is_last) const {
  return is_last ? in_parts(block, last_parts_[turn]) : std::vector<GridSpan>{block};
}

// Additions are applied in the order of ids: sums inside a group come before what the ring brings,
// or they would wait for that.
void GridWriter::sum_inside(std::size_t hop) {
  const std::size_t outermost = sides_.size() - 1;
  for (std::size_t turn = 0; turn < by_turn_.size(); ++turn) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const GridSpan block = reduced(i, outermost, hop, turn);
      for (const GridSpan part : first_parts(block, turn, hop == 0)) {
        sum_inside(i, turn, part);
      }
    }
  }
}

/// All to the line's member.
void GridWriter::sum_inside(std::size_t group, std::size_t turn, GridSpan owners) {
  for (std::size_t from = 1; from < groups_[group].ranks.size(); ++from) {
    for (const std::size_t p : by_turn_[turn]) {
      const std::size_t line = parcels_[p].line;
      const Rank src = holder(group, line + from);
      // Not long before it is needed: sums for later hops would keep devices from others.
      const Ids& after = passed_on_[src.index() * by_turn_.size() + turn];
      const TransferId id = builder_.reduce(src, holder(group, line), range(p, owners), after);
      for (std::size_t o = owners.begin; o < owners.begin + owners.count; ++o) {
        here(group, p, o).push_back(id);
      }
    }
  }
}

void GridWriter::reduce_hop(std::size_t stage, std::size_t hop) {
  const bool is_first = stage + 1 == sides_.size() && hop == 0;
  for (std::size_t turn = 0; turn < by_turn_.size(); ++turn) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      for (const GridSpan part : first_parts(reduced(i, stage, hop, turn), turn, is_first)) {
        pass_on(plan::TransferOp::kReduce, i, after(i, stage, 1, turn), turn, part);
      }
    }
  }
}

void GridWriter::give_back() {
  for (std::size_t p = 0; p < parcels_.size(); ++p) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const Rank from = holder(i, parcels_[p].line);
      const Rank to = holder(i, parcels_[p].owner);
      if (from != to) {
        builder_.copy(from, to, range(p, {i, 1}), here(i, p, i));
      }
    }
  }
}

void GridWriter::lend() {
  for (std::size_t p = 0; p < parcels_.size(); ++p) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const Rank from = holder(i, parcels_[p].owner);
      const Rank to = holder(i, parcels_[p].line);
      if (from != to) {
        here(i, p, i).push_back(builder_.copy(from, to, range(p, {i, 1}), {}));
      }
    }
  }
}

void GridWriter::gather_hop(std::size_t stage, std::size_t hop) {
  const std::size_t side = sides_[stage];
  const bool is_outermost = stage + 1 == sides_.size();
  for (std::size_t turn = 0; turn < by_turn_.size(); ++turn) {
    for (std::size_t i = 0; i < groups_.size() && hop + 1 < side; ++i) {
      const bool is_last = is_outermost && hop + 2 == side;
      for (const GridSpan part : last_parts(copied(i, stage, hop, turn), turn, is_last)) {
        pass_on(plan::TransferOp::kCopy, i, after(i, stage, 1, turn), turn, part);
      }
    }
    // What a group has at the beginning of a later stage was copied in those before.
    for (std::size_t i = 0; i < groups_.size() && (hop > 0 || stage == 0); ++i) {
      const bool is_last = is_outermost && hop + 1 == side;
      for (const GridSpan part : last_parts(copied(i, stage, hop, turn), turn, is_last)) {
        copy_inside(i, turn, part);
      }
    }
  }
}

void GridWriter::copy_inside(std::size_t group, std::size_t turn, GridSpan owners) {
  for (std::size_t offset = 1; offset < groups_[group].ranks.size(); ++offset) {
    for (const std::size_t p : by_turn_[turn]) {
      const GridParcel& parcel = parcels_[p];
      const Rank to = holder(group, parcel.line + offset);
      if (owners.begin == group && owners.count == 1 && to == holder(group, parcel.owner)) {
        continue;  // who lent it
      }
      builder_.copy(holder(group, parcel.line), to, range(p, owners), here(group, p, owners));
    }
  }
}

/// To another group's member of each line.
void GridWriter::pass_on(plan::TransferOp op, std::size_t group, std::size_t next, std::size_t turn,
                         GridSpan owners) {
  for (const std::size_t p : by_turn_[turn]) {
    send(op, group, next, p, owners);
  }
}

void GridWriter::send(plan::TransferOp op, std::size_t from, std::size_t to, std::size_t parcel,
                      GridSpan owners) {
  const Range moved = range(parcel, owners);
  const Rank src = holder(from, parcels_[parcel].line);
  const Rank dst = holder(to, parcels_[parcel].line);
  const Ids before = here(from, parcel, owners);
  const bool copies = op == plan::TransferOp::kCopy;
  const TransferId id =
      copies ? builder_.copy(src, dst, moved, before) : builder_.reduce(src, dst, moved, before);
  for (std::size_t o = owners.begin; o < owners.begin + owners.count; ++o) {
    Ids& there = here(to, parcel, o);
    if (copies) {
      there.clear();  // it replaces what was added
    }
    there.push_back(id);
  }
  if (!copies) {
    passed_on_[src.index() * by_turn_.size() + parcels_[parcel].turn] = {id};
  }
}

std::vector<std::size_t> more_grid_parts(plan::Collective what, const GridSides& sides,
                                         std::size_t turns) {
  std::size_t groups = 1;
  for (auto side = sides.begin(); side + 1 != sides.end(); ++side) {
    groups *= *side;
  }
  std::vector<std::size_t> more(turns);
  const auto add = [&](const std::vector<std::vector<std::size_t>>& parts) {
    for (std::size_t turn = 0; turn < turns; ++turn) {
      more[turn] += parts[turn].size() - 1;
    }
  };
  if (what != plan::Collective::kAllGather) {
    add(growing_parts(turns, groups, kBeforeASum));
  }
  if (what != plan::Collective::kReduceScatter) {
    add(shrinking_parts(turns, groups, kAfterACopy));
  }
  return more;
}

}  // namespace rackrail::planner
