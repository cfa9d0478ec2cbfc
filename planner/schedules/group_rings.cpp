#include "planner/schedules/group_rings.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "plan/alpha_beta.hpp"
#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostLines = 64;
constexpr std::size_t kPieces[] = {2, 3, 4, 6, 8, 16, 32};
constexpr std::uint32_t kWhole = 24;  // weight of a piece
// Where pieces are cut at the last hop of copies, in 64ths of what goes one way round, before its
// end. An all-reduce has additions to wait for meanwhile, and gains less by more messages.
constexpr std::uint32_t kCuts[] = {1, 2, 4, 6, 10, 14, 22, 30, 46};
constexpr std::uint32_t kCutsOfAllReduce[] = {2, 4, 8};
constexpr std::uint32_t kCutUnits = 64;

/// A piece of a rank's data. What is sent across first when sums are made, and last when they are
/// copied, is in parts: the less it is, the less others wait for it inside groups.
struct Piece {
  std::vector<std::uint32_t> parts;  ///< weights
  bool is_first = false;             ///< in parts at the first hop of a reduction
  bool is_last = false;              ///< in parts at the last hop of copies

  std::uint32_t weight() const {
    return std::accumulate(parts.begin(), parts.end(), std::uint32_t{0});
  }
};

/// Whether copies are cut so much before the end of what goes their way round.
bool are_copies_cut(plan::Collective what, std::uint32_t left, std::uint32_t all) {
  std::span<const std::uint32_t> cuts;
  if (what != plan::Collective::kReduceScatter) {
    cuts = what == plan::Collective::kAllGather ? std::span<const std::uint32_t>(kCuts)
                                                : std::span<const std::uint32_t>(kCutsOfAllReduce);
  }
  return std::ranges::any_of(
      cuts, [&](std::uint32_t cut) { return left == (cut * all + kCutUnits / 2) / kCutUnits; });
}

/// Weights of pieces that go one way round. Were those of an all-gather alike that go back,
/// messages of both ways would end together, and their link wait for the next.
std::vector<std::uint32_t> weights_of_pieces(plan::Collective what, std::size_t count,
                                             bool go_back) {
  std::vector<std::uint32_t> weights(count, kWhole);
  if (what == plan::Collective::kAllGather && go_back && count > 1) {
    weights.front() -= kWhole / 2;
    weights.back() += kWhole / 2;
  }
  return weights;
}

/// In the order in which they set out; every other one goes back where they go both ways.
std::vector<Piece> pieces_of(plan::Collective what, std::size_t count, RingWays ways) {
  if (count == 1) {
    return {{{1}}};
  }
  std::vector<Piece> pieces(count);
  const std::size_t step = ways == RingWays::kBoth ? 2 : 1;
  for (std::size_t way = 0; way < step; ++way) {
    const std::vector<std::uint32_t> weights =
        weights_of_pieces(what, (count - way + step - 1) / step, way > 0);
    const std::uint32_t all = std::accumulate(weights.begin(), weights.end(), std::uint32_t{0});
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      Piece& piece = pieces[way + i * step];
      piece.parts.push_back(0);
      for (std::uint32_t unit = 0; unit < weights[i]; ++unit, ++at) {
        // Additions take longer than messages: of sums only the first piece of all is cut.
        const bool cuts_sums =
            what != plan::Collective::kAllGather && way == 0 && i == 0 && unit == weights[i] / 2;
        const bool cuts_copies = unit > 0 && are_copies_cut(what, all - at, all);
        piece.is_first = piece.is_first || cuts_sums;
        piece.is_last = piece.is_last || cuts_copies;
        if (cuts_sums || cuts_copies) {
          piece.parts.push_back(0);
        }
        ++piece.parts.back();
      }
    }
  }
  return pieces;
}

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
  Rings(plan::Collective what, const ScheduleRequest& request, std::size_t pieces, RingWays ways)
      : what_(what),
        ways_(ways),
        groups_(ring_of_groups(request.topology)),
        k_(groups_.size()),
        lines_(ring_lines(groups_)),
        pieces_(pieces_of(what, pieces, ways)),
        chunks_(first_chunks(pieces_)),
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
  /// By piece, and how many there are.
  static std::vector<std::uint32_t> first_chunks(const std::vector<Piece>& pieces) {
    std::vector<std::uint32_t> first = {0};
    for (const Piece& piece : pieces) {
      first.push_back(first.back() + static_cast<std::uint32_t>(piece.parts.size()));
    }
    return first;
  }
  /// Every rank owns as much of the buffer.
  std::vector<std::uint32_t> weights() const {
    std::vector<std::uint32_t> weights;
    for (std::size_t l = 0; l < lines_; ++l) {
      for (const topology::RankGroup& group : groups_) {
        for (const Piece& piece : pieces_) {
          for (const std::uint32_t weight : piece.parts) {
            weights.push_back(weight * static_cast<std::uint32_t>(group.ranks.size()));
          }
        }
      }
    }
    return weights;
  }

  std::vector<Rank> owners() const {
    std::vector<Rank> owners;
    for (std::size_t l = 0; l < lines_; ++l) {
      for (std::size_t j = 0; j < k_; ++j) {
        owners.insert(owners.end(), chunks_.back(), holder(j, l));
      }
    }
    return owners;
  }
  Rank holder(std::size_t group, std::size_t line) const {
    return member_on_line(groups_[group], line);
  }
  /// A piece, in parts where it has any and they are asked for.
  std::vector<Range> ranges(std::size_t line, std::size_t owner, std::size_t piece,
                            bool in_parts) const {
    const auto first =
        static_cast<std::uint32_t>((line * k_ + owner) * chunks_.back() + chunks_[piece]);
    const std::uint32_t count = chunks_[piece + 1] - chunks_[piece];
    if (!in_parts) {
      return {{first, count}};
    }
    std::vector<Range> parts;
    for (std::uint32_t part = 0; part < count; ++part) {
      parts.push_back({first + part, 1});
    }
    return parts;
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
  }

  /// What groups pass on at a hop, or after the last one own.
  void sum_inside(std::size_t hop) {
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      for (std::size_t i = 0; i < k_; ++i) {
        sum_inside(i, owner_reduced(i, hop, piece), piece, hop == 0 && pieces_[piece].is_first);
      }
    }
  }
  /// All to the line's member, one part after the other.
  void sum_inside(std::size_t group, std::size_t owner, std::size_t piece, bool in_parts) {
    const std::size_t members = groups_[group].ranks.size();
    for (std::size_t l = 0; l < lines_; ++l) {
      here(group, l, owner, piece).clear();
    }
    const std::size_t parts = ranges(0, owner, piece, in_parts).size();
    for (std::size_t part = 0; part < parts; ++part) {
      for (std::size_t from = 1; from < members; ++from) {
        for (std::size_t l = 0; l < lines_; ++l) {
          const Rank src = holder(group, l + from);
          const Range range = ranges(l, owner, piece, in_parts)[part];
          // Not long before it is needed: sums for later hops would keep devices from others.
          const std::vector<TransferId>& after = reduced_[src.index() * pieces_.size() + piece];
          here(group, l, owner, piece)
              .push_back({builder_.reduce(src, holder(group, l), range, after), range});
        }
      }
    }
  }

  void gather() {
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

  void copy_inside(std::size_t group, std::size_t owner, std::size_t piece,
                   std::optional<std::size_t> part) {
    for (std::size_t offset = 1; offset < groups_[group].ranks.size(); ++offset) {
      for (std::size_t l = 0; l < lines_; ++l) {
        const Range range = ranges(l, owner, piece, part.has_value())[part.value_or(0)];
        builder_.copy(holder(group, l), holder(group, l + offset), range,
                      ids_within(here(group, l, owner, piece), range));
      }
    }
  }

  /// To the next group's member of each line.
  void pass_on(plan::TransferOp op, std::size_t group, std::size_t owner, std::size_t piece,
               bool in_parts) {
    const std::size_t next = after(group, 1, piece);
    for (std::size_t l = 0; l < lines_; ++l) {
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
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> chunks_;  ///< of a rank's data: the first of each piece, their number
  GraphBuilder builder_;
  std::vector<std::vector<Arrival>> here_;        ///< by group, line, owner and piece
  std::vector<std::vector<TransferId>> reduced_;  ///< by rank and piece: sent last to be added
};

/// What rings in pieces are like, by those in one and without being made: where all go the same
/// way, chains of dependencies are as long, and links carry as much. `of_a_part`: moves of one
/// part at one hop.
FormShape in_pieces(const FormShape& one, const std::vector<Piece>& pieces, std::size_t of_a_part) {
  std::size_t parts = 0;
  std::size_t more_moves = 0;
  std::uint32_t largest = 0;
  std::uint32_t whole = 0;
  for (const Piece& piece : pieces) {
    parts += piece.parts.size();
    more_moves += (piece.parts.size() - 1) * ((piece.is_first ? 1 : 0) + (piece.is_last ? 1 : 0));
    largest = std::max(largest, piece.weight());
    whole += piece.weight();
  }
  FormShape shape = one;
  shape.largest_share *= static_cast<double>(largest) / whole;
  shape.transfers = static_cast<std::int64_t>(pieces.size()) * one.transfers +
                    static_cast<std::int64_t>(more_moves * of_a_part);
  // More parts are rounded, and no chunk is empty once each unit of weight has an element.
  shape.bound->rounding = shape.bound->rounding * static_cast<std::int64_t>(parts);
  shape.bound->fewest_elements *= whole;
  return shape;
}

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
    return "groups are of too unlike sizes";
  }
  if (!(codecs.inside == codecs.across)) {
    return "what is passed on keeps its codec";
  }
  return refuse_lossy_hops(codecs);
}

double bytes_of_an_element(const plan::TransferGraph& graph) {
  return plan::bytes_per_element(graph)[graph.transfers().front().codec];
}

plan::TransferGraph make_group_rings(plan::Collective what, const ScheduleRequest& request,
                                     std::size_t pieces, RingWays ways) {
  return Rings(what, request, pieces, ways).make();
}

std::vector<CollectiveForm> group_ring_forms(plan::Collective what,
                                             const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  if (refuse_group_rings(request.topology, request.codecs)) {
    return forms;
  }
  forms.emplace_back(make_group_rings(what, request, 1), request.topology);
  const FormShape one = forms.front().shape();
  const std::size_t of_a_part =
      request.topology.rank_count() * ring_lines(tier_groups(request.topology));
  const auto add = [&](std::size_t pieces, RingWays ways, const plan::AlphaBeta& bound_of_few) {
    FormShape shape = in_pieces(one, pieces_of(what, pieces, ways), of_a_part);
    const bool is_possible = pieces <= request.most_rounds &&
                             shape.transfers <= static_cast<std::int64_t>(request.most_transfers);
    if (is_possible) {
      shape.bound->seconds_per_element = bound_of_few.seconds_per_element;
      shape.bound->alpha = std::min(shape.bound->alpha, bound_of_few.alpha);
      forms.emplace_back(shape, [what, request, pieces, ways] {
        return make_group_rings(what, request, pieces, ways);
      });
    }
    return is_possible;
  };
  for (const std::size_t pieces : kPieces) {
    if (!add(pieces, RingWays::kOne, *one.bound)) {
      break;
    }
  }
  if (request.most_rounds < 2) {
    return forms;
  }
  // Links that carry one way only what goes that way have half of it each, or not, as routes are.
  const plan::AlphaBeta both =
      plan::alpha_beta(make_group_rings(what, request, 2, RingWays::kBoth), request.topology);
  for (const std::size_t pieces : kPieces) {
    if (pieces % 2 == 0 && !add(pieces, RingWays::kBoth, both)) {
      break;
    }
  }
  return forms;
}

}  // namespace rackrail::planner
