#include "planner/algorithms/bypass_rings.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "plan/alpha_beta.hpp"
#include "plan/changed_graph.hpp"
#include "planner/algorithms/bypass_trees.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/algorithms/group_exchanges.hpp"
#include "planner/algorithms/part_loads.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/packing/colours.hpp"
#include "planner/pipeline/move_writer.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostRanksPassed = 512;
constexpr std::size_t kFewestGroupsPassed = 3;  // two have no other to pass by
constexpr std::size_t kBypassPieces[] = {4, 8, 12, 16, 24, 32};
constexpr double kUnitsOfPassed = 1U << 28U;
constexpr double kTimeOfPassed = 0.999;  // of what exact weights would take, at least
constexpr std::size_t kMostRoutesOfPassed = 64;
// Of the time of the sums over the number of groups: how long before it is sent on a piece is
// summed inside a group, and how long before that it may be.
constexpr double kAhead = 0.05;
constexpr double kNotBefore = 0.12;
constexpr double kTurnOfRoot = 0.5;  // of the time that a piece is at its root before it is copied

struct PassedGroups {
  std::vector<topology::RankGroup> groups;  ///< in the order of their ring
  LineRates rates;
  PassingHops hops = PassingHops::kUnrated;
};

bool has_slow_member(const LineRates& rates) {
  return std::ranges::any_of(rates, [](const std::vector<Bandwidth>& of_line) {
    const auto [least, most] = std::ranges::minmax(of_line);
    return least < scaled(most, kSlowShare);
  });
}

/// A piece's way: summed along one tree and copied along the mirror image of another.
struct PassedPiece {
  BypassTree sums;
  BypassTree copies;
};

std::vector<PassedPiece> passed_pieces(const PassedGroups& passed, std::size_t count) {
  const std::vector<BypassTree> all = bypass_pieces(passed.rates, count, passed.hops);
  std::vector<BypassTree> sums = bypass_trees(passed.rates, all, passed.hops);
  LineRates back = passed.rates;
  for (std::vector<Bandwidth>& rates : back) {
    std::ranges::reverse(rates);
  }
  std::vector<BypassTree> copies = all;
  const std::size_t last = passed.groups.size() - 1;
  for (BypassTree& tree : copies) {
    tree.root = last - tree.root;
  }
  copies = bypass_trees(back, std::move(copies), passed.hops);
  for (BypassTree& tree : copies) {
    tree.root = last - tree.root;
    for (BypassArc& arc : tree.arcs) {
      arc.from = last - arc.from;
      arc.to = last - arc.to;
    }
  }
  // By root and size; what is summed first is copied first.
  std::ranges::sort(sums, [](const BypassTree& one, const BypassTree& other) {
    return std::tuple(one.root, one.share, one.end, one.number) <
           std::tuple(other.root, other.share, other.end, other.number);
  });
  std::ranges::sort(copies, [](const BypassTree& one, const BypassTree& other) {
    return std::tuple(one.root, one.share, -one.end, one.number) <
           std::tuple(other.root, other.share, -other.end, other.number);
  });
  std::vector<PassedPiece> pieces;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    pieces.push_back({std::move(sums[i]), std::move(copies[i])});
  }
  return pieces;
}

class BypassRings {
 public:
  BypassRings(const PassedGroups& passed, const ScheduleRequest& request,
              const std::vector<PassedPiece>& pieces)
      : groups_(passed.groups),
        of_group_(1 / static_cast<double>(groups_.size())),
        request_(request),
        moves_("hierarchical", request) {
    for (const PassedPiece& piece : pieces) {
      const std::uint32_t weight = static_cast<std::uint32_t>(
          std::max<std::int64_t>(1, std::llround(kUnitsOfPassed * piece.sums.share)));
      moves_.begin_chunks({&weight, 1});
      sum(piece);
      copy(piece);
    }
  }

  plan::TransferGraph make() {
    std::vector<std::vector<PassedOn>> passed_on(request_.topology.rank_count());  // by rank
    return with_rates(moves_.take([&](std::uint32_t number, const MoveWriter::Move& move,
                                      MoveWriter::Numbers& after) {
      auto& of_rank = passed_on[move.src.index()];
      if (const auto end = ends_.find(number); end != ends_.end()) {
        of_rank.push_back(
            {of_rank.empty() ? end->second : std::max(of_rank.back().end, end->second), number});
      } else if (move.op == plan::TransferOp::kReduce) {
        hold(move, of_rank, after);
      }
    }));
  }

 private:
  struct PassedOn {
    double end = 0;
    std::uint32_t move = 0;
  };

  /// What is summed inside its group, until its sender has passed on what is long before it.
  void hold(const MoveWriter::Move& move, const std::vector<PassedOn>& passed_on,
            std::vector<std::uint32_t>& after) const {
    const auto later =
        std::ranges::upper_bound(passed_on, move.turn - kNotBefore * of_group_, {}, &PassedOn::end);
    if (later != passed_on.begin()) {
      after.push_back(std::prev(later)->move);
    }
  }

  /// With those of hops that must not have more than their part of what they share.
  plan::TransferGraph with_rates(plan::TransferGraph graph) const {
    if (limited_.empty()) {
      return graph;
    }
    std::vector<plan::RatedRoute> routes = plan::rated_routes(graph);
    for (const plan::Transfer& transfer : graph.transfers()) {
      if (const auto rate = limited_.find({transfer.src, transfer.dst}); rate != limited_.end()) {
        routes[transfer.route.index()].rate = rate->second;
      }
    }
    return plan::with_routes(graph, std::move(routes));
  }

  Rank member(std::size_t group, std::size_t line) const {
    return member_on_line(groups_[group], line);
  }

  /// Where the root has the sum: from where its first copy leaves.
  Rank root_of(const PassedPiece& piece) const {
    return member(piece.sums.root, piece.copies.arcs.back().line);
  }

  void sum(const PassedPiece& piece) {
    for (const BypassArc& arc : piece.sums.arcs) {
      const Rank src = member(arc.from, arc.line);
      const Rank dst = member(arc.to, arc.line);
      sum_inside(arc.from, src, arc.start - kAhead * of_group_);
      ends_.emplace(moves_.reduce(src, dst, {}, arc.start), arc.end);
      limit(src, dst, arc.rate);
    }
    const double leaves = 2 - piece.copies.arcs.back().end;
    sum_inside(piece.sums.root, root_of(piece),
               piece.sums.end + std::max(0.0, kTurnOfRoot * (leaves - piece.sums.end)));
  }

  void limit(Rank src, Rank dst, Bandwidth rate) {
    if (rate > Bandwidth(0)) {
      limited_.emplace(std::pair(src, dst), rate);
    }
  }

  void sum_inside(std::size_t group, Rank dst, double time) {
    const auto& ranks = groups_[group].ranks;
    const auto own =
        static_cast<std::size_t>(std::distance(ranks.begin(), std::ranges::find(ranks, dst)));
    for (std::size_t offset = 1; offset < ranks.size(); ++offset) {
      moves_.reduce(ranks[(own + offset) % ranks.size()], dst, {}, time);
    }
  }

  /// The mirror image of the tree, in the second half of the time.
  void copy(const PassedPiece& piece) {
    const std::vector<BypassArc>& arcs = piece.copies.arcs;
    std::vector<std::vector<Rank>> leave(groups_.size());  // by group
    for (const BypassArc& arc : arcs) {
      leave[arc.to].push_back(member(arc.to, arc.line));
    }
    copy_inside(piece.sums.root, root_of(piece), leave[piece.sums.root], 2 - piece.copies.end);
    for (auto arc = arcs.rbegin(); arc != arcs.rend(); ++arc) {
      const Rank src = member(arc->to, arc->line);
      const Rank dst = member(arc->from, arc->line);
      moves_.copy(src, dst, {}, 2 - arc->start);
      limit(src, dst, arc->rate);
      copy_inside(arc->from, dst, leave[arc->from], 2 - arc->start);
    }
  }

  /// First to where it leaves the group.
  void copy_inside(std::size_t group, Rank src, const std::vector<Rank>& first, double time) {
    const auto& ranks = groups_[group].ranks;
    const auto own =
        static_cast<std::size_t>(std::distance(ranks.begin(), std::ranges::find(ranks, src)));
    for (const bool is_first : {true, false}) {
      for (std::size_t offset = 1; offset < ranks.size(); ++offset) {
        const Rank dst = ranks[(own + offset) % ranks.size()];
        if ((std::ranges::count(first, dst) > 0) == is_first) {
          moves_.copy(src, dst, {}, time);
        }
      }
    }
  }

  const std::vector<topology::RankGroup>& groups_;
  double of_group_;  ///< one over their number
  const ScheduleRequest& request_;
  MoveWriter moves_;
  std::unordered_map<std::uint32_t, double> ends_;  ///< of moves between groups, to be added
  std::map<std::pair<Rank, Rank>, Bandwidth> limited_;
};

/// That a transfer takes whichever of equal routes the graph has it take (balanced_routes.hpp).
topology::Route links_of_all_routes(topology::Router& router, Rank src, Rank dst) {
  topology::Route common = router.route(src, dst);
  for (const topology::Route& other : router.equal_routes(src, dst, kMostRoutesOfPassed)) {
    std::erase_if(common,
                  [&](LinkId link) { return std::ranges::find(other, link) == other.end(); });
  }
  return common;
}

/// In which a byte of the buffer is reduced, at least: what goes between groups, as pieces divide
/// it.
double seconds_across(const PassedGroups& passed, const ScheduleRequest& request,
                      const std::vector<PassedPiece>& pieces) {
  std::map<std::pair<Rank, Rank>, double> sent;
  double whole = 0;
  for (const PassedPiece& piece : pieces) {
    whole += piece.sums.share;
    const auto member = [&](std::size_t group, std::size_t line) {
      return member_on_line(passed.groups[group], line);
    };
    for (const BypassArc& arc : piece.sums.arcs) {
      sent[{member(arc.from, arc.line), member(arc.to, arc.line)}] += piece.sums.share;
    }
    for (const BypassArc& arc : piece.copies.arcs) {
      sent[{member(arc.to, arc.line), member(arc.from, arc.line)}] += piece.sums.share;
    }
  }
  PartLoads loads(request.topology);
  for (const auto& [pair, share] : sent) {
    loads.cross(links_of_all_routes(request.router, pair.first, pair.second), share / whole);
  }
  loads.end_part();
  return loads.time({1});
}

/// By one in few pieces, and what goes between groups; without latencies.
FormShape bypass_in_more(const CollectiveForm& few, const std::vector<PassedPiece>& all,
                         std::size_t pieces, std::size_t transfers_of_piece,
                         double seconds_per_byte) {
  FormShape shape = few.shape();
  const auto times = static_cast<std::int64_t>(2 * pieces);
  shape.largest_share = 0;
  for (const PassedPiece& piece : all) {
    shape.largest_share = std::max(shape.largest_share, piece.sums.share);
  }
  shape.transfers = static_cast<std::int64_t>(all.size() * transfers_of_piece);
  shape.bound->seconds_per_element =
      kTimeOfPassed * seconds_per_byte *
      plan::bytes_per_element(few.graph())[few.graph().transfers().front().codec];
  shape.bound->alpha = {};
  shape.bound->rounding = shape.bound->rounding * times;
  shape.bound->fewest_elements *= times;
  return shape;
}

}  // namespace

std::vector<CollectiveForm> bypass_ring_forms(const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  const topology::Topology& topology = request.topology;
  const std::size_t ranks = topology.rank_count();
  if (ranks > kMostRanksPassed || refuse_group_rings(topology, request.codecs) ||
      tier_groups(topology).size() < kFewestGroupsPassed || !are_ranks_unlike(topology)) {
    return forms;
  }
  PassedGroups found{ring_of_groups(topology),
                     {},
                     request.may_have_rates ? PassingHops::kRated : PassingHops::kUnrated};
  found.rates = line_rates(topology, request.router, found.groups, ring_lines(found.groups),
                           LinesOverRanks::kLeftOut);
  if (!has_slow_member(found.rates) || !seconds_of_sums(found.rates, found.hops)) {
    return forms;
  }
  const auto passed = std::make_shared<const PassedGroups>(std::move(found));
  const std::size_t of_piece = 2 * (ranks - 1);
  const std::size_t most = request.most_pieces();
  for (const std::size_t pieces : kBypassPieces) {
    if (bypass_pieces(passed->rates, pieces, passed->hops).size() * of_piece > most ||
        pieces > request.most_rounds) {
      break;
    }
    const auto all =
        std::make_shared<const std::vector<PassedPiece>>(passed_pieces(*passed, pieces));
    const auto make = [passed, request, all, pieces] {
      return with_mechanism(BypassRings(*passed, request, *all).make(),
                            "rings that bypass slow members, " + in_rounds_text(pieces));
    };
    if (forms.empty()) {
      forms.emplace_back(make(), topology);
    } else {
      forms.emplace_back(bypass_in_more(forms.front(), *all, pieces, of_piece,
                                        seconds_across(*passed, request, *all)),
                         make);
    }
  }
  return forms;
}

}  // namespace rackrail::planner
