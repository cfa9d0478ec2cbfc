#include "planner/algorithms/group_grids.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include "plan/alpha_beta.hpp"
#include "planner/algorithms/grid_writer.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kFewestGroups = 8;
constexpr std::size_t kPiecesOfGrids[] = {2, 3, 4, 6, 8, 16};  // both ways round even numbers only
// Of one form: where ranks are very many, more than others may have, as nothing else is as fast.
constexpr std::size_t kMostTransfersOfGrids = 2'000'000;

/// All of a line's members' data in so many turns, and what it carries of others' in one more: last
/// of all copies, as it is to be copied to who carries it first; and first of all sums, which go on
/// to who owns them.
std::vector<GridParcel> grid_parcels(plan::Collective what,
                                     const std::vector<topology::RankGroup>& groups,
                                     const LineLanes& lanes, std::size_t pieces) {
  const bool has_lent = without_lent(lanes) != lanes;
  const bool lent_first = has_lent && what == plan::Collective::kReduceScatter;
  const auto add = [&](std::vector<GridParcel>& parcels, std::size_t line, const LineLane& lane,
                       std::size_t turn, std::size_t times) {
    GridParcel& parcel = parcels.emplace_back(GridParcel{line, lane.owner, turn, {}});
    for (const topology::RankGroup& group : groups) {
      parcel.weights.push_back(lane.weight *
                               static_cast<std::uint32_t>(times * group.ranks.size()));
    }
  };
  std::vector<GridParcel> parcels;
  for (std::size_t turn = 0; turn < pieces + (has_lent ? 1 : 0); ++turn) {
    const bool is_lent = has_lent && turn == (lent_first ? 0 : pieces);
    for (std::size_t line = 0; line < lanes.size(); ++line) {
      for (const LineLane& lane : lanes[line]) {
        if ((lane.owner != line) == is_lent) {
          add(parcels, line, lane, turn, is_lent ? pieces : 1);
        }
      }
    }
  }
  return parcels;
}

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

/// Of a transfer in so many pieces, over that in one: what lines own is in as many parts, what they
/// carry of others' in one.
double largest_in_pieces(const LineLanes& lanes, std::size_t pieces) {
  double own = 0;
  double lent = 0;
  for (std::size_t line = 0; line < lanes.size(); ++line) {
    for (const LineLane& lane : lanes[line]) {
      double& largest = lane.owner == line ? own : lent;
      largest = std::max(largest, static_cast<double>(lane.weight));
    }
  }
  const auto count = static_cast<double>(pieces);
  return std::max(own / count, lent) / std::max(own, lent);
}

/// What a grid in pieces is like, by one in a single piece and the bound of one in few.
FormShape in_pieces_of_grids(const FormShape& one, const plan::AlphaBeta& few,
                             const LineLanes& lanes, std::size_t pieces) {
  const auto count = static_cast<std::int64_t>(pieces);
  FormShape shape = one;
  shape.largest_share *=
      lanes.empty() ? 1 / static_cast<double>(pieces) : largest_in_pieces(lanes, pieces);
  shape.bound->rounding = shape.bound->rounding * count;
  shape.bound->fewest_elements *= count;
  shape.bound->seconds_per_element = few.seconds_per_element;
  shape.bound->alpha = std::min(shape.bound->alpha, few.alpha);
  return shape;
}

/// Along the same lanes, with the same sides.
void add_grid_forms(plan::Collective what, const ScheduleRequest& request, const GridSides& sides,
                    const LineLanes& lanes, std::vector<CollectiveForm>& forms) {
  const std::size_t most = std::max(request.most_transfers,
                                    lanes.empty() ? kMostTransfersOfGrids : kMostPlannedTransfers);
  const auto transfers = [&](std::size_t pieces) {
    return group_grid_transfers(what, request.topology, sides, pieces, lanes);
  };
  if (transfers(1) > most) {
    return;
  }
  forms.emplace_back(make_group_grid(what, request, sides, 1, RingWays::kOne, lanes),
                     request.topology);
  const FormShape one = forms.back().shape();
  if (request.most_rounds < 2 || transfers(2) > most) {
    return;
  }
  // A message's overhead keeps its pair of ranks from sending, not the link, so pieces that go both
  // ways round lose less; but the last copies of both then come together. Along uneven lanes both
  // would share what the slowest member has.
  const bool is_one_way = what == plan::Collective::kAllGather ||
                          (what == plan::Collective::kAllReduce && !lanes.empty());
  const RingWays ways = is_one_way ? RingWays::kOne : RingWays::kBoth;
  const plan::AlphaBeta few =
      is_one_way ? *one.bound
                 : plan::alpha_beta(make_group_grid(what, request, sides, 2, ways, lanes),
                                    request.topology);
  for (const std::size_t pieces : kPiecesOfGrids) {
    if (ways == RingWays::kBoth && pieces % 2 != 0) {
      continue;
    }
    FormShape shape = in_pieces_of_grids(one, few, lanes, pieces);
    if (!lanes.empty()) {
      // Any of the lines that are equally full may be the one that counts, with parts that are lent
      // beside its own.
      shape.bound->rounding =
          shape.bound->rounding * 4 + one.bound->rounding * static_cast<std::int64_t>(lanes.size());
    }
    shape.transfers = static_cast<std::int64_t>(transfers(pieces));
    if (pieces <= request.most_rounds && transfers(pieces) <= most) {
      forms.emplace_back(shape, [what, request, sides, pieces, ways, lanes] {
        return make_group_grid(what, request, sides, pieces, ways, lanes);
      });
    }
  }
}

/// Of so many sides, those of the fewest hops whose inner rings are shorter than that.
std::optional<GridSides> sides_of_fewest_hops(const topology::Topology& topology,
                                              std::size_t factors, std::size_t shorter_than) {
  const std::vector<topology::RankGroup> groups = ring_of_groups(topology);
  if (groups.size() < kFewestGroups) {
    return std::nullopt;
  }
  const std::optional<std::size_t> of_a_rack = groups_of_a_rack(topology, groups);
  std::vector<GridSides> all = factored(groups.size(), factors);
  std::erase_if(all, [&](const GridSides& of) { return of.front() >= shorter_than; });
  const auto first = std::ranges::min_element(all, {}, [&](const GridSides& of) {
    return std::pair(!is_aligned(of, of_a_rack), std::accumulate(of.begin(), of.end(), 0UL));
  });
  return first == all.end() ? std::nullopt : std::optional(*first);
}

}  // namespace

std::vector<GridSides> group_grid_sides(const topology::Topology& topology) {
  std::vector<GridSides> sides = two_sides(topology);
  sides.resize(std::min<std::size_t>(sides.size(), 2));
  if (const auto three = sides_of_fewest_hops(topology, 3, SIZE_MAX)) {
    sides.push_back(*three);
  }
  return sides;
}

std::vector<GridSides> two_sides(const topology::Topology& topology) {
  std::vector<GridSides> sides;
  for (auto two = sides_of_fewest_hops(topology, 2, SIZE_MAX); two;
       two = sides_of_fewest_hops(topology, 2, (two->front() + 1) / 2 + 1)) {
    sides.push_back(*two);
  }
  return sides;
}

std::size_t group_grid_transfers(plan::Collective what, const topology::Topology& topology,
                                 const GridSides& sides, std::size_t pieces,
                                 const LineLanes& lanes) {
  const std::vector<topology::RankGroup> groups = tier_groups(topology);
  const std::size_t inside = topology.rank_count() - groups.size();  // of a parcel at one hop
  const std::size_t across = groups.size();
  const std::size_t hops =
      std::accumulate(sides.begin(), sides.end(), std::size_t{0}) - sides.size();
  std::size_t of_a_parcel = 0;
  // Sums inside come before each hop of the outermost rings and after the last one.
  if (what != plan::Collective::kAllGather) {
    of_a_parcel += hops * across + sides.back() * inside;
  }
  if (what != plan::Collective::kReduceScatter) {
    of_a_parcel += hops * across + (hops + 1) * inside;
  }
  const std::vector<GridParcel> parcels =
      grid_parcels(what, groups, lanes_for(what, ring_lines(groups), lanes), pieces);
  const std::vector<std::size_t> more =
      more_grid_parts(what, sides, parcels.empty() ? 0 : parcels.back().turn + 1);
  std::size_t transfers = 0;
  for (const GridParcel& parcel : parcels) {
    // Sums that go on to their owner; copies to who carries them are instead of one back.
    const bool goes_on = parcel.owner != parcel.line && what == plan::Collective::kReduceScatter;
    const auto passed_on = static_cast<std::size_t>(
        goes_on ? std::ranges::count_if(groups,
                                        [&](const topology::RankGroup& group) {
                                          return member_on_line(group, parcel.line) !=
                                                 member_on_line(group, parcel.owner);
                                        })
                : 0);
    transfers += of_a_parcel + more[parcel.turn] * (across + inside) + passed_on;
  }
  return transfers;
}

plan::TransferGraph make_group_grid(plan::Collective what, const ScheduleRequest& request,
                                    const GridSides& sides, std::size_t pieces, RingWays ways,
                                    const LineLanes& lanes) {
  const std::vector<topology::RankGroup> groups = ring_of_groups(request.topology);
  GridWriter writer(what, request, sides,
                    grid_parcels(what, groups, lanes_for(what, ring_lines(groups), lanes), pieces),
                    ways);
  if (what != plan::Collective::kAllGather) {
    writer.sum_inside(0);
    for (std::size_t stage = sides.size(); stage-- > 0;) {
      for (std::size_t hop = 0; hop + 1 < sides[stage]; ++hop) {
        if (stage + 1 == sides.size()) {
          writer.sum_inside(hop + 1);
        }
        writer.reduce_hop(stage, hop);
      }
    }
    writer.give_back();
  }
  if (what != plan::Collective::kReduceScatter) {
    writer.lend();
    for (std::size_t stage = 0; stage < sides.size(); ++stage) {
      for (std::size_t hop = 0; hop < sides[stage]; ++hop) {
        writer.gather_hop(stage, hop);
      }
    }
  }
  return with_mechanism(
      writer.take(), fmt::format("rings of groups per rail over {}{}{}, {}", fmt::join(sides, "x"),
                                 ways == RingWays::kBoth ? " both ways" : "",
                                 lanes.empty() ? "" : " in unequal parts", in_rounds_text(pieces)));
}

std::vector<CollectiveForm> group_grid_forms(plan::Collective what,
                                             const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  if (!request.is_of_one_size || request.codecs.inside.is_lossy() ||
      request.codecs.across.is_lossy() || refuse_group_rings(request.topology, request.codecs)) {
    return forms;
  }
  // First, so that even ones need not be looked at where these are faster than their bounds.
  if (const std::vector<GridSides> all = two_sides(request.topology); !all.empty()) {
    if (const LineLanes lanes = uneven_lanes(what, request); !lanes.empty()) {
      for (const GridSides& sides : all) {
        add_grid_forms(what, request, sides, lanes, forms);
      }
    }
  }
  for (const GridSides& sides : group_grid_sides(request.topology)) {
    add_grid_forms(what, request, sides, {}, forms);
  }
  return forms;
}

}  // namespace rackrail::planner
