#include "planner/schedules/group_grids.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "plan/alpha_beta.hpp"
#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kFewestGroups = 8;
constexpr std::size_t kPiecesOfGrids[] = {2, 4, 6, 8, 16};
// Of one form: where ranks are very many, more than others may have, as nothing else is as fast.
constexpr std::size_t kMostTransfersOfGrids = 2'000'000;
// Times a part that is summed or copied, what is sent before it, or after it. Sums are in fewer
// parts, as each costs a device an addition.
constexpr std::size_t kBeforeASum = 2;
constexpr std::size_t kAfterACopy = 4;

/// Groups [begin, begin + count) of the ring of all.
struct GroupSpan {
  std::size_t begin = 0;
  std::size_t count = 1;
};

/// By piece, of how many groups each the first blocks are summed at a time: of ever more, in
/// proportion to what a NIC sends meanwhile, as boxes sum only little faster than that.
std::vector<std::vector<std::size_t>> growing_parts(std::size_t pieces, std::size_t groups,
                                                    std::size_t times) {
  std::vector<std::vector<std::size_t>> parts(pieces);
  std::size_t before = 0;
  for (auto& of_piece : parts) {
    for (std::size_t left = groups; left > 0; left -= of_piece.back()) {
      const std::size_t size = std::max<std::size_t>(1, before / times);
      of_piece.push_back(left < size + size / 2 ? left : size);
      before += of_piece.back();
    }
  }
  return parts;
}

/// The same backwards, of the last blocks that are copied.
std::vector<std::vector<std::size_t>> shrinking_parts(std::size_t pieces, std::size_t groups,
                                                      std::size_t times) {
  std::vector<std::vector<std::size_t>> parts = growing_parts(pieces, groups, times);
  std::ranges::reverse(parts);
  for (auto& of_piece : parts) {
    std::ranges::reverse(of_piece);
  }
  return parts;
}

/// One collective being made. Of a stage d, that of rings along side d, a group has, sends and
/// receives blocks of as many groups as the sides before d have together.
class GroupGrid {
 public:
  GroupGrid(plan::Collective what, const ScheduleRequest& request, const GridSides& sides,
            std::size_t pieces, RingWays ways)
      : what_(what),
        ways_(ways),
        sides_(sides),
        pieces_(pieces),
        groups_(ring_of_groups(request.topology)),
        k_(groups_.size()),
        lines_(ring_lines(groups_)),
        builder_("hierarchical", request, weights(), what),
        here_(k_ * lines_ * pieces * k_),
        reduced_(request.topology.rank_count() * pieces) {
    std::size_t stride = 1;
    for (const std::size_t side : sides) {
      strides_.push_back(stride);
      stride *= side;
    }
    first_parts_ = growing_parts(pieces, strides_.back(), kBeforeASum);
    last_parts_ = shrinking_parts(pieces, strides_.back(), kAfterACopy);
  }

  plan::TransferGraph make() {
    if (what_ != plan::Collective::kAllGather) {
      reduce();
    }
    if (what_ != plan::Collective::kReduceScatter) {
      gather();
    }
    return builder_.take(owners());
  }

 private:
  using Range = GraphBuilder::Range;
  using Ids = std::vector<TransferId>;

  /// Every rank owns as much of the buffer. By line, piece and group, so that blocks are ranges.
  std::vector<std::uint32_t> weights() const {
    std::vector<std::uint32_t> weights;
    for (std::size_t i = 0; i < lines_ * pieces_; ++i) {
      for (const topology::RankGroup& group : groups_) {
        weights.push_back(static_cast<std::uint32_t>(group.ranks.size()));
      }
    }
    return weights;
  }
  std::vector<Rank> owners() const {
    std::vector<Rank> owners;
    for (std::size_t i = 0; i < lines_ * pieces_; ++i) {
      for (std::size_t j = 0; j < k_; ++j) {
        owners.push_back(holder(j, i / pieces_));
      }
    }
    return owners;
  }
  Rank holder(std::size_t group, std::size_t line) const {
    return member_on_line(groups_[group], line);
  }
  Range range(std::size_t line, std::size_t piece, GroupSpan owners) const {
    return {static_cast<std::uint32_t>((line * pieces_ + piece) * k_ + owners.begin),
            static_cast<std::uint32_t>(owners.count)};
  }
  /// What the line's member of a group has of an owner's piece waits for these.
  Ids& here(std::size_t group, std::size_t line, std::size_t piece, std::size_t owner) {
    return here_[((group * lines_ + line) * pieces_ + piece) * k_ + owner];
  }
  Ids here(std::size_t group, std::size_t line, std::size_t piece, GroupSpan owners) {
    Ids ids;
    for (std::size_t owner = owners.begin; owner < owners.begin + owners.count; ++owner) {
      const Ids& more = here(group, line, piece, owner);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    std::ranges::sort(ids);
    ids.erase(std::ranges::unique(ids).begin(), ids.end());
    return ids;
  }
  /// The group so many hops, at most one round, further along the stage's ring of a piece.
  std::size_t after(std::size_t group, std::size_t stage, std::size_t hops,
                    std::size_t piece) const {
    const std::size_t side = sides_[stage];
    const std::size_t at = group / strides_[stage] % side;
    const bool is_back = ways_ == RingWays::kBoth && piece % 2 == 1;
    const std::size_t to = (is_back ? at + side - hops : at + hops) % side;
    return group + to * strides_[stage] - at * strides_[stage];
  }
  /// What a group has of the stage's blocks when it has but one.
  GroupSpan block_of(std::size_t group, std::size_t stage) const {
    const std::size_t count = strides_[stage];
    return {group / count * count, count};
  }
  /// What a group passes on at a hop of a stage of the reduction; after the last hop what it keeps.
  GroupSpan reduced(std::size_t group, std::size_t stage, std::size_t hop,
                    std::size_t piece) const {
    return block_of(after(group, stage, sides_[stage] - 1 - hop, piece), stage);
  }
  /// The same of the copies; after the last hop what it has got then.
  GroupSpan copied(std::size_t group, std::size_t stage, std::size_t hop, std::size_t piece) const {
    return block_of(after(group, stage, sides_[stage] - hop, piece), stage);
  }

  // Additions are applied in the order of ids: sums inside a group come before what the ring
  // brings, or they would wait for that.
  void reduce() {
    const std::size_t outermost = sides_.size() - 1;
    sum_inside(0);
    for (std::size_t stage = sides_.size(); stage-- > 0;) {
      for (std::size_t hop = 0; hop + 1 < sides_[stage]; ++hop) {
        if (stage == outermost) {
          sum_inside(hop + 1);
        }
        for (std::size_t piece = 0; piece < pieces_; ++piece) {
          for (std::size_t i = 0; i < k_; ++i) {
            const GroupSpan block = reduced(i, stage, hop, piece);
            for (const GroupSpan part : first_parts(block, piece, stage == outermost && hop == 0)) {
              pass_on(plan::TransferOp::kReduce, i, after(i, stage, 1, piece), piece, part);
            }
          }
        }
      }
    }
  }

  /// What groups pass on at a hop along the outermost rings, or after the last one keep.
  void sum_inside(std::size_t hop) {
    const std::size_t outermost = sides_.size() - 1;
    for (std::size_t piece = 0; piece < pieces_; ++piece) {
      for (std::size_t i = 0; i < k_; ++i) {
        const GroupSpan block = reduced(i, outermost, hop, piece);
        for (const GroupSpan part : first_parts(block, piece, hop == 0)) {
          sum_inside(i, piece, part);
        }
      }
    }
  }
  /// All to the line's member.
  void sum_inside(std::size_t group, std::size_t piece, GroupSpan owners) {
    for (std::size_t from = 1; from < groups_[group].ranks.size(); ++from) {
      for (std::size_t l = 0; l < lines_; ++l) {
        const Rank src = holder(group, l + from);
        // Not long before it is needed: sums for later hops would keep devices from others.
        const Ids& after = reduced_[src.index() * pieces_ + piece];
        const TransferId id =
            builder_.reduce(src, holder(group, l), range(l, piece, owners), after);
        for (std::size_t o = owners.begin; o < owners.begin + owners.count; ++o) {
          here(group, l, piece, o).push_back(id);
        }
      }
    }
  }

  void gather() {
    const std::size_t outermost = sides_.size() - 1;
    for (std::size_t stage = 0; stage < sides_.size(); ++stage) {
      const std::size_t side = sides_[stage];
      for (std::size_t hop = 0; hop < side; ++hop) {
        for (std::size_t piece = 0; piece < pieces_; ++piece) {
          for (std::size_t i = 0; i < k_ && hop + 1 < side; ++i) {
            const bool is_last = stage == outermost && hop + 2 == side;
            for (const GroupSpan part : last_parts(copied(i, stage, hop, piece), piece, is_last)) {
              pass_on(plan::TransferOp::kCopy, i, after(i, stage, 1, piece), piece, part);
            }
          }
          // What a group has at the beginning of a later stage was copied in those before.
          for (std::size_t i = 0; i < k_ && (hop > 0 || stage == 0); ++i) {
            const bool is_last = stage == outermost && hop + 1 == side;
            for (const GroupSpan part : last_parts(copied(i, stage, hop, piece), piece, is_last)) {
              copy_inside(i, piece, part);
            }
          }
        }
      }
    }
  }

  void copy_inside(std::size_t group, std::size_t piece, GroupSpan owners) {
    for (std::size_t offset = 1; offset < groups_[group].ranks.size(); ++offset) {
      for (std::size_t l = 0; l < lines_; ++l) {
        builder_.copy(holder(group, l), holder(group, l + offset), range(l, piece, owners),
                      here(group, l, piece, owners));
      }
    }
  }

  /// A block of the outermost rings in the parts in which it is summed first, or copied last, where
  /// it is that; else all of it.
  std::vector<GroupSpan> first_parts(GroupSpan block, std::size_t piece, bool is_first) const {
    return is_first ? in_parts(block, first_parts_[piece]) : std::vector<GroupSpan>{block};
  }
  std::vector<GroupSpan> last_parts(GroupSpan block, std::size_t piece, bool is_last) const {
    return is_last ? in_parts(block, last_parts_[piece]) : std::vector<GroupSpan>{block};
  }
  static std::vector<GroupSpan> in_parts(GroupSpan block, const std::vector<std::size_t>& sizes) {
    std::vector<GroupSpan> parts;
    for (const std::size_t size : sizes) {
      parts.push_back({block.begin, size});
      block.begin += size;
    }
    return parts;
  }

  /// To another group's member of each line.
  void pass_on(plan::TransferOp op, std::size_t group, std::size_t next, std::size_t piece,
               GroupSpan owners) {
    for (std::size_t l = 0; l < lines_; ++l) {
      const Rank src = holder(group, l);
      const Ids before = here(group, l, piece, owners);
      const Range moved = range(l, piece, owners);
      const bool copies = op == plan::TransferOp::kCopy;
      const TransferId id = copies ? builder_.copy(src, holder(next, l), moved, before)
                                   : builder_.reduce(src, holder(next, l), moved, before);
      for (std::size_t o = owners.begin; o < owners.begin + owners.count; ++o) {
        Ids& there = here(next, l, piece, o);
        if (copies) {
          there.clear();  // it replaces what was added
        }
        there.push_back(id);
      }
      if (!copies) {
        reduced_[src.index() * pieces_ + piece] = {id};
      }
    }
  }

  plan::Collective what_;
  RingWays ways_;
  GridSides sides_;
  std::vector<std::size_t> strides_;  ///< by side: groups of a block
  // By piece: of how many groups each.
  std::vector<std::vector<std::size_t>> first_parts_;
  std::vector<std::vector<std::size_t>> last_parts_;
  std::size_t pieces_;
  std::vector<topology::RankGroup> groups_;
  std::size_t k_;
  std::size_t lines_;
  GraphBuilder builder_;
  std::vector<Ids> here_;     ///< by group, line, piece and owner
  std::vector<Ids> reduced_;  ///< by rank and piece: sent last to be added
};

/// Of groups in the order of their ring, how many each rack has, where all have as many and more
/// than one; else nothing.
std::optional<std::size_t> groups_of_a_rack(const topology::Topology& topology,
                                            const std::vector<topology::RankGroup>& groups) {
  std::vector<std::size_t> rack_of(topology.rank_count());
  const auto racks = topology::ranks_by_rack(topology);
  for (std::size_t rack = 0; rack < racks.size(); ++rack) {
    for (const Rank rank : racks[rack].ranks) {
      rack_of[rank.index()] = rack;
    }
  }
  std::vector<std::size_t> counts;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto rack = [&](std::size_t group) { return rack_of[groups[group].ranks[0].index()]; };
    if (i == 0 || rack(i) != rack(i - 1)) {
      counts.push_back(0);
    }
    ++counts.back();
  }
  const bool are_alike =
      std::ranges::all_of(counts, [&](std::size_t count) { return count == counts[0]; });
  return are_alike && counts[0] > 1 && counts.size() > 1 ? std::optional(counts[0]) : std::nullopt;
}

/// All ways to write a number as so many factors of two and more.
std::vector<GridSides> factored(std::size_t number, std::size_t factors) {
  if (factors == 1) {
    return number > 1 ? std::vector<GridSides>{{number}} : std::vector<GridSides>{};
  }
  std::vector<GridSides> found;
  for (std::size_t first = 2; 2 * first <= number; ++first) {
    if (number % first == 0) {
      for (GridSides& rest : factored(number / first, factors - 1)) {
        rest.insert(rest.begin(), first);
        found.push_back(std::move(rest));
      }
    }
  }
  return found;
}

/// Whether rings are within racks, or of whole ones.
bool is_aligned(const GridSides& sides, std::optional<std::size_t> of_a_rack) {
  std::size_t together = 1;
  return !of_a_rack || std::ranges::all_of(sides, [&](std::size_t side) {
    together *= side;
    return *of_a_rack % together == 0 || together % *of_a_rack == 0;
  });
}

/// How many parts there are of the first and last blocks, beyond one of each.
std::size_t more_parts(plan::Collective what, const GridSides& sides, std::size_t pieces) {
  const std::size_t groups =
      std::accumulate(sides.begin(), sides.end() - 1, std::size_t{1}, std::multiplies());
  std::size_t more = 0;
  for (const bool sums : {true, false}) {
    if (what == (sums ? plan::Collective::kAllGather : plan::Collective::kReduceScatter)) {
      continue;
    }
    for (const auto& parts : growing_parts(pieces, groups, sums ? kBeforeASum : kAfterACopy)) {
      more += parts.size() - 1;
    }
  }
  return more;
}

/// What a grid in pieces is like, by one in a single piece and the bound of one in few.
FormShape in_pieces_of_grids(const FormShape& one, const plan::AlphaBeta& few, std::size_t pieces) {
  const auto count = static_cast<std::int64_t>(pieces);
  FormShape shape = one;
  shape.largest_share /= static_cast<double>(pieces);
  shape.bound->rounding = shape.bound->rounding * count;
  shape.bound->fewest_elements *= count;
  shape.bound->seconds_per_element = few.seconds_per_element;
  shape.bound->alpha = std::min(shape.bound->alpha, few.alpha);
  return shape;
}

void add_grid_forms(plan::Collective what, const ScheduleRequest& request, const GridSides& sides,
                    std::vector<CollectiveForm>& forms) {
  const std::size_t most = std::max(request.most_transfers, kMostTransfersOfGrids);
  if (group_grid_transfers(what, request.topology, sides, 1) > most) {
    return;
  }
  forms.emplace_back(make_group_grid(what, request, sides, 1), request.topology);
  const FormShape one = forms.back().shape();
  if (request.most_rounds < 2 || group_grid_transfers(what, request.topology, sides, 2) > most) {
    return;
  }
  // A message's overhead keeps its pair of ranks from sending, not the link, so pieces that go both
  // ways round lose less; but the last copies of both then come together.
  const RingWays ways = what == plan::Collective::kAllGather ? RingWays::kOne : RingWays::kBoth;
  const plan::AlphaBeta few =
      ways == RingWays::kOne
          ? *one.bound
          : plan::alpha_beta(make_group_grid(what, request, sides, 2, ways), request.topology);
  for (const std::size_t pieces : kPiecesOfGrids) {
    FormShape shape = in_pieces_of_grids(one, few, pieces);
    const std::size_t transfers = group_grid_transfers(what, request.topology, sides, pieces);
    shape.transfers = static_cast<std::int64_t>(transfers);
    if (pieces <= request.most_rounds && transfers <= most) {
      forms.emplace_back(shape, [what, request, sides, pieces, ways] {
        return make_group_grid(what, request, sides, pieces, ways);
      });
    }
  }
}

}  // namespace

std::vector<GridSides> group_grid_sides(const topology::Topology& topology) {
  const std::vector<topology::RankGroup> groups = ring_of_groups(topology);
  if (groups.size() < kFewestGroups) {
    return {};
  }
  const std::optional<std::size_t> of_a_rack = groups_of_a_rack(topology, groups);
  /// The one of the fewest hops whose inner rings are shorter than that.
  const auto best = [&](std::size_t factors, std::size_t shorter_than) {
    std::vector<GridSides> all = factored(groups.size(), factors);
    std::erase_if(all, [&](const GridSides& of) { return of.front() >= shorter_than; });
    const auto first = std::ranges::min_element(all, {}, [&](const GridSides& of) {
      return std::pair(!is_aligned(of, of_a_rack), std::accumulate(of.begin(), of.end(), 0UL));
    });
    return first == all.end() ? std::nullopt : std::optional(*first);
  };
  std::vector<GridSides> sides;
  if (const auto two = best(2, SIZE_MAX)) {
    sides.push_back(*two);
    if (const auto shorter = best(2, two->front())) {
      sides.push_back(*shorter);
    }
  }
  if (const auto three = best(3, SIZE_MAX)) {
    sides.push_back(*three);
  }
  return sides;
}

std::size_t group_grid_transfers(plan::Collective what, const topology::Topology& topology,
                                 const GridSides& sides, std::size_t pieces) {
  const std::vector<topology::RankGroup> groups = tier_groups(topology);
  const std::size_t lines = ring_lines(groups);
  const std::size_t inside = (topology.rank_count() - groups.size()) * lines;  // of one hop
  const std::size_t across = groups.size() * lines;
  const std::size_t hops =
      std::accumulate(sides.begin(), sides.end(), std::size_t{0}) - sides.size();
  std::size_t of_a_piece = 0;
  // Sums inside come before each hop of the outermost rings and after the last one.
  if (what != plan::Collective::kAllGather) {
    of_a_piece += hops * across + sides.back() * inside;
  }
  if (what != plan::Collective::kReduceScatter) {
    of_a_piece += hops * across + (hops + 1) * inside;
  }
  return pieces * of_a_piece + more_parts(what, sides, pieces) * (across + inside);
}

plan::TransferGraph make_group_grid(plan::Collective what, const ScheduleRequest& request,
                                    const GridSides& sides, std::size_t pieces, RingWays ways) {
  return GroupGrid(what, request, sides, pieces, ways).make();
}

std::vector<CollectiveForm> group_grid_forms(plan::Collective what,
                                             const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  if (!request.is_of_one_size || request.codecs.inside.is_lossy() ||
      request.codecs.across.is_lossy() || refuse_group_rings(request.topology, request.codecs)) {
    return forms;
  }
  for (const GridSides& sides : group_grid_sides(request.topology)) {
    add_grid_forms(what, request, sides, forms);
  }
  return forms;
}

}  // namespace rackrail::planner
