#include "planner/algorithms/group_rings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/alpha_beta.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/groups/line_rates.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/packing/colours.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostLines = 64;
constexpr std::size_t kFewestGroupsUneven = 3;  // two are few enough for forests

/// A transfer that brought some of a piece.
struct Arrival {
  TransferId id;
  GraphBuilder::Range range;
};

std::vector<TransferId> ids_within(const std::vector<Arrival>& arrivals,
                                   GraphBuilder::Range range) {
  std::vector<TransferId> ids;
  for (const Arrival& arrival : arrivals) {
    if (arrival.range.begin < range.begin + range.count &&
        range.begin < arrival.range.begin + arrival.range.count) {
      ids.push_back(arrival.id);
    }
  }
  return ids;
}

/// One collective being made.
class Rings {
 public:
  Rings(plan::Collective what, const ScheduleRequest& request, std::size_t pieces, RingWays ways,
        const LineLanes& lanes)
      : what_(what),
        ways_(ways),
        groups_(ring_of_groups(request.topology)),
        k_(groups_.size()),
        lines_(lanes.size()),
        pieces_(ring_pieces(what, pieces, ways)),
        first_parts_(first_parts(pieces_)),
        carried_(carried_by(lanes)),
        carriers_(carriers_of(lanes)),
        builder_("hierarchical", request, weights(), what),
        here_(k_ * lines_ * k_ * pieces),
        reduced_(request.topology.rank_count() * pieces) {}

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
  /// What a line carries of every group's data: its first chunk of all, and those of a group.
  struct Carried {
    std::uint32_t first = 0;
    LaneChunks chunks;
  };
  /// A range that members of one line own.
  struct OwnedRange {
    std::size_t line = 0;
    Range range;
  };

  /// By piece, and how many there are.
  static std::vector<std::uint32_t> first_parts(const std::vector<RingPiece>& pieces) {
    std::vector<std::uint32_t> first = {0};
    for (const RingPiece& piece : pieces) {
      first.push_back(first.back() + static_cast<std::uint32_t>(piece.parts.size()));
    }
    return first;
  }
  std::vector<Carried> carried_by(const LineLanes& lanes) const {
    std::vector<std::uint32_t> parts;
    for (const RingPiece& piece : pieces_) {
      parts.insert(parts.end(), piece.parts.begin(), piece.parts.end());
    }
    std::vector<Carried> carried;
    std::uint32_t first = 0;
    for (const std::vector<LineLane>& of_line : lanes) {
      carried.push_back({first, lane_chunks(of_line, parts)});
      first += static_cast<std::uint32_t>(k_ * carried.back().chunks.weights.size());
    }
    return carried;
  }
  static std::vector<std::size_t> carriers_of(const LineLanes& lanes) {
    std::vector<std::size_t> carriers;
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      if (!lanes[l].empty()) {
        carriers.push_back(l);
      }
    }
    return carriers;
  }
  /// Every rank owns as much of the buffer.
  std::vector<std::uint32_t> weights() const {
    std::vector<std::uint32_t> weights;
    for (const Carried& carried : carried_) {
      for (const topology::RankGroup& group : groups_) {
        for (const std::uint32_t weight : carried.chunks.weights) {
          weights.push_back(weight * static_cast<std::uint32_t>(group.ranks.size()));
        }
      }
    }
    return weights;
  }

  std::vector<Rank> owners() const {
    std::vector<Rank> owners;
    for (const Carried& carried : carried_) {
      for (std::size_t j = 0; j < k_; ++j) {
        for (const std::size_t line : carried.chunks.owners) {
          owners.push_back(holder(j, line));
        }
      }
    }
    return owners;
  }
  Rank holder(std::size_t group, std::size_t line) const {
    return member_on_line(groups_[group], line);
  }
  /// What a line carries of the owner group's data from one part to another.
  Range parts_between(std::size_t line, std::size_t owner, std::size_t begin,
                      std::size_t end) const {
    const auto& [first, chunks] = carried_[line];
    return {static_cast<std::uint32_t>(first + owner * chunks.weights.size()) +
                chunks.part_begin[begin],
            chunks.part_begin[end] - chunks.part_begin[begin]};
  }
  /// A piece, in parts where it has any and they are asked for.
  std::vector<Range> ranges(std::size_t line, std::size_t owner, std::size_t piece,
                            bool in_parts) const {
    const std::size_t begin = first_parts_[piece];
    const std::size_t end = first_parts_[piece + 1];
    if (!in_parts) {
      return {parts_between(line, owner, begin, end)};
    }
    std::vector<Range> parts;
    for (std::size_t part = begin; part < end; ++part) {
      parts.push_back(parts_between(line, owner, part, part + 1));
    }
    return parts;
  }
  /// A piece by the line whose member of the owner group owns it.
  std::vector<OwnedRange> owned_ranges(std::size_t line, std::size_t owner,
                                       std::size_t piece) const {
    const auto& [first, chunks] = carried_[line];
    const auto of_group = static_cast<std::uint32_t>(first + owner * chunks.weights.size());
    std::vector<OwnedRange> owned;
    for (std::uint32_t chunk = chunks.part_begin[first_parts_[piece]];
         chunk < chunks.part_begin[first_parts_[piece + 1]]; ++chunk) {
      if (owned.empty() || owned.back().line != chunks.owners[chunk]) {
        owned.push_back({chunks.owners[chunk], {of_group + chunk, 0}});
      }
      ++owned.back().range.count;
    }
    return owned;
  }
  /// What the line's member of a group has of a piece waits for these.
  std::vector<Arrival>& here(std::size_t group, std::size_t line, std::size_t owner,
                             std::size_t piece) {
    return here_[((group * lines_ + line) * k_ + owner) * pieces_.size() + piece];
  }
  /// The group so many hops, at most one round, further along the ring of a piece.
  std::size_t after(std::size_t group, std::size_t hops, std::size_t piece) const {
    const bool is_back = ways_ == RingWays::kBoth && piece % 2 == 1;
    return (is_back ? group + k_ - hops : group + hops) % k_;
  }
  /// By owner, what a group passes on at a hop of the reduction.
  std::size_t owner_reduced(std::size_t group, std::size_t hop, std::size_t piece) const {
    return after(group, k_ - 1 - hop, piece);
  }
  /// The same of the copies.
  std::size_t owner_copied(std::size_t group, std::size_t hop, std::size_t piece) const {
    return after(group, k_ - hop, piece);
  }

  // Additions are applied in the order of ids: sums inside a group come before what the ring
  // brings, or they would wait for that.
  void reduce() {
    sum_inside(0);
    for (std::size_t hop = 0; hop + 1 < k_; ++hop) {
      sum_inside(hop + 1);
      for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
        for (std::size_t i = 0; i < k_; ++i) {
          pass_on(plan::TransferOp::kReduce, i, owner_reduced(i, hop, piece), piece,
                  hop == 0 && pieces_[piece].is_first);
        }
      }
    }
    give_back();
  }

  /// What groups pass on at a hop, or after the last one own.
  void sum_inside(std::size_t hop) {
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      for (std::size_t i = 0; i < k_; ++i) {
        sum_inside(i, owner_reduced(i, hop, piece), piece, hop == 0 && pieces_[piece].is_first);
      }
    }
  }
  /// All to the line's member, one part after the other; what is the group's own to its owner.
  void sum_inside(std::size_t group, std::size_t owner, std::size_t piece, bool in_parts) {
    const std::size_t members = groups_[group].ranks.size();
    for (const std::size_t l : carriers_) {
      here(group, l, owner, piece).clear();
    }
    const std::size_t parts = in_parts ? pieces_[piece].parts.size() : 1;
    for (std::size_t part = 0; part < parts; ++part) {
      for (std::size_t from = 1; from < members; ++from) {
        for (const std::size_t l : carriers_) {
          if (group != owner) {
            add_inside(group, l, from, owner, piece, {l, ranges(l, owner, piece, in_parts)[part]});
            continue;
          }
          for (const OwnedRange& owned : owned_ranges(l, owner, piece)) {
            add_inside(group, l, from, owner, piece, owned);
          }
        }
      }
    }
  }
  /// One member's part of what a line carries, to the member of the line that is to have it.
  void add_inside(std::size_t group, std::size_t line, std::size_t from, std::size_t owner,
                  std::size_t piece, const OwnedRange& sum) {
    const Rank src = holder(group, sum.line + from);
    const Rank dst = holder(group, sum.line);
    if (sum.line != line && src == holder(group, line)) {
      return;  // with what the ring brings: give_back()
    }
    // Not long before it is needed: sums for later hops would keep devices from others.
    const std::vector<TransferId>& after = reduced_[src.index() * pieces_.size() + piece];
    const TransferId id = builder_.reduce(src, dst, sum.range, after);
    if (sum.line == line) {
      here(group, line, owner, piece).push_back({id, sum.range});
    }
  }
  /// From where the ring ends to who owns it, where that is another.
  void give_back() {
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      for (std::size_t i = 0; i < k_; ++i) {
        for (const std::size_t l : carriers_) {
          for (const OwnedRange& owned : owned_ranges(l, i, piece)) {
            if (holder(i, owned.line) != holder(i, l)) {
              builder_.reduce(holder(i, l), holder(i, owned.line), owned.range,
                              ids_within(here(i, l, i, piece), owned.range));
            }
          }
        }
      }
    }
  }

  void gather() {
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      for (std::size_t i = 0; i < k_; ++i) {
        lend(i, piece);
      }
    }
    for (std::size_t hop = 0; hop + 1 < k_; ++hop) {
      for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
        for (std::size_t i = 0; i < k_; ++i) {
          pass_on(plan::TransferOp::kCopy, i, owner_copied(i, hop, piece), piece,
                  pieces_[piece].is_last && hop + 2 == k_);
        }
        for (std::size_t i = 0; i < k_; ++i) {
          copy_inside(i, owner_copied(i, hop, piece), piece, std::nullopt);
        }
      }
    }
    for (const auto& [piece, part] : order_of_last_copies()) {
      for (std::size_t i = 0; i < k_; ++i) {
        copy_inside(i, owner_copied(i, k_ - 1, piece), piece, part);
      }
    }
  }

  struct LastCopy {
    std::size_t piece = 0;
    std::optional<std::size_t> part;  ///< none: all of it
  };
  /// As they arrive: what goes one way round and the other comes in turns, so the parts of one
  /// piece do not follow one another.
  std::vector<LastCopy> order_of_last_copies() const {
    const std::size_t ways = ways_ == RingWays::kBoth ? 2 : 1;
    std::vector<double> before(ways);  // of what goes that way
    std::vector<double> whole(ways);
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      whole[piece % ways] += pieces_[piece].weight();
    }
    std::vector<std::pair<double, LastCopy>> copies;
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      const std::size_t way = piece % ways;
      const bool is_last = pieces_[piece].is_last;
      for (std::size_t part = 0; part < pieces_[piece].parts.size(); ++part) {
        before[way] += pieces_[piece].parts[part];
        if (is_last || part + 1 == pieces_[piece].parts.size()) {
          copies.push_back(
              {before[way] / whole[way], {piece, is_last ? std::optional(part) : std::nullopt}});
        }
      }
    }
    std::ranges::stable_sort(copies, {}, [](const auto& copy) { return copy.first; });
    std::vector<LastCopy> order;
    for (const auto& copy : copies) {
      order.push_back(copy.second);
    }
    return order;
  }

  /// By who owns it, to its group what another line carries, to that line's member first.
  void lend(std::size_t group, std::size_t piece) {
    for (std::size_t offset = 0; offset < groups_[group].ranks.size(); ++offset) {
      for (const std::size_t l : carriers_) {
        for (const OwnedRange& owned : owned_ranges(l, group, piece)) {
          const Rank src = holder(group, owned.line);
          const Rank dst = holder(group, l + offset);
          if (owned.line == l || src == dst) {
            continue;
          }
          const TransferId id = builder_.copy(src, dst, owned.range, {});
          if (offset == 0) {
            here(group, l, group, piece).push_back({id, owned.range});
          }
        }
      }
    }
  }

  void copy_inside(std::size_t group, std::size_t owner, std::size_t piece,
                   std::optional<std::size_t> part) {
    for (std::size_t offset = 1; offset < groups_[group].ranks.size(); ++offset) {
      for (const std::size_t l : carriers_) {
        const std::optional<Range> range = range_inside(group, l, owner, piece, part);
        if (range) {
          builder_.copy(holder(group, l), holder(group, l + offset), *range,
                        ids_within(here(group, l, owner, piece), *range));
        }
      }
    }
  }
  /// What a line's member copies to its group: of the group's own only what is its own (lend()).
  std::optional<Range> range_inside(std::size_t group, std::size_t line, std::size_t owner,
                                    std::size_t piece, std::optional<std::size_t> part) const {
    if (group != owner) {
      return ranges(line, owner, piece, part.has_value())[part.value_or(0)];
    }
    for (const OwnedRange& owned : owned_ranges(line, owner, piece)) {
      if (owned.line == line) {
        return owned.range;
      }
    }
    return std::nullopt;
  }

  /// To the next group's member of each line.
  void pass_on(plan::TransferOp op, std::size_t group, std::size_t owner, std::size_t piece,
               bool in_parts) {
    const std::size_t next = after(group, 1, piece);
    for (const std::size_t l : carriers_) {
      const Rank src = holder(group, l);
      const std::vector<Arrival>& known = here(group, l, owner, piece);
      std::vector<Arrival>& there = here(next, l, owner, piece);
      if (op == plan::TransferOp::kCopy) {
        there.clear();  // it replaces what was added
      }
      for (const Range range : ranges(l, owner, piece, in_parts)) {
        const std::vector<TransferId> after = ids_within(known, range);
        if (op == plan::TransferOp::kCopy) {
          there.push_back({builder_.copy(src, holder(next, l), range, after), range});
          continue;
        }
        const TransferId id = builder_.reduce(src, holder(next, l), range, after);
        there.push_back({id, range});
        reduced_[src.index() * pieces_.size() + piece] = {id};
      }
    }
  }

  plan::Collective what_;
  RingWays ways_;
  std::vector<topology::RankGroup> groups_;
  std::size_t k_;
  std::size_t lines_;
  std::vector<RingPiece> pieces_;
  std::vector<std::uint32_t> first_parts_;  ///< by piece: its first part of all, and their number
  std::vector<Carried> carried_;            ///< by line
  std::vector<std::size_t> carriers_;       ///< lines that carry something
  GraphBuilder builder_;
  std::vector<std::vector<Arrival>> here_;        ///< by group, line, owner and piece
  std::vector<std::vector<TransferId>> reduced_;  ///< by rank and piece: sent last to be added
};

}  // namespace

std::vector<topology::RankGroup> ring_of_groups(const topology::Topology& topology) {
  const std::vector<Rank> order = near_order(topology);
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i].index()] = i;
  }
  std::vector<topology::RankGroup> groups = tier_groups(topology);
  std::stable_sort(groups.begin(), groups.end(), [&](const auto& one, const auto& other) {
    return place[one.ranks.front().index()] < place[other.ranks.front().index()];
  });
  return groups;
}

std::size_t ring_lines(const std::vector<topology::RankGroup>& groups) {
  std::size_t lines = 1;
  for (const topology::RankGroup& group : groups) {
    lines = std::min(std::lcm(lines, group.ranks.size()), kMostLines + 1);
  }
  return lines;
}

std::optional<std::string> refuse_group_rings(const topology::Topology& topology,
                                              const TierCodecs& codecs) {
  const std::vector<topology::RankGroup> groups = tier_groups(topology);
  if (auto refusal = refuse_no_tiers(groups)) {
    return refusal;
  }
  if (groups.size() < 2) {
    return "there is one group";
  }
  if (ring_lines(groups) > kMostLines) {
    return "groups differ too much in size";
  }
  if (!(codecs.inside == codecs.across)) {
    return "what is passed on keeps its codec";
  }
  return refuse_lossy_hops(codecs);
}

double bytes_of_an_element(const plan::TransferGraph& graph) {
  return plan::bytes_per_element(graph)[graph.transfers().front().codec];
}

LineLanes uneven_lanes(plan::Collective what, const ScheduleRequest& request) {
  const std::vector<topology::RankGroup> groups = ring_of_groups(request.topology);
  if (groups.size() < kFewestGroupsUneven || !are_ranks_unlike(request.topology)) {
    return {};
  }
  std::vector<Bandwidth> least;
  for (const std::vector<Bandwidth>& of_line :
       line_rates(request.topology, request.router, groups, ring_lines(groups),
                  LinesOverRanks::kLeftOut)) {
    least.push_back(std::ranges::min(of_line));
  }
  LineLanes lanes = lanes_by_rates(least);
  if (what == plan::Collective::kReduceScatter) {
    // Sums of what others own go on when the ring has brought them, so they come first.
    std::ranges::for_each(lanes, [](auto& of_line) { std::ranges::reverse(of_line); });
  }
  // Before an all-reduce nobody owns anything.
  return what == plan::Collective::kAllReduce ? without_lent(lanes) : lanes;
}

plan::TransferGraph make_group_rings(plan::Collective what, const ScheduleRequest& request,
                                     std::size_t pieces, RingWays ways, const LineLanes& lanes) {
  const std::size_t lines = ring_lines(tier_groups(request.topology));
  return with_mechanism(
      Rings(what, request, pieces, ways, lanes_for(what, lines, lanes)).make(),
      fmt::format("rings of groups per rail{}{}, {}", ways == RingWays::kBoth ? " both ways" : "",
                  lanes.empty() || lanes == even_lanes(lines) ? "" : " in unequal parts",
                  in_rounds_text(pieces)));
}

}  // namespace rackrail::planner
