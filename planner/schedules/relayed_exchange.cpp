#include "planner/schedules/relayed_exchange.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/forest/colours.hpp"
#include "planner/part_loads.hpp"
#include "planner/schedules/builder.hpp"
#include "planner/schedules/group_rings.hpp"
#include "planner/schedules/line_rates.hpp"
#include "planner/schedules/timed_moves.hpp"

namespace rackrail::planner {

namespace {

constexpr double kWorthAWay = 1e-3;  // of a line's mean share
constexpr double kUnitsOfRelayed = 1U << 28U;
constexpr double kTimeOfRelayed = 0.999;  // of what exact weights would take, at least

constexpr std::size_t kRelayedPieces[] = {16, 32, 64, 96, 128, 192};
// The last pieces, one in so many, are ever smaller.
constexpr std::size_t kLastRelayed = 16;
constexpr double kSmallestRelayed = 0.3;
// By how many pieces a hop is behind the first sums.
constexpr double kTurnOfPair = 1;    // to the pair that carries it
constexpr double kTurnAcross = 2;    // between groups
constexpr double kTurnFromPair = 4;  // from the pair that carried it
constexpr double kFirstCopies = 5;   // the first copies
constexpr double kCopyHop = 1;       // from one copy to the next

/// A line's share of the buffer that a pair of members carries between the groups.
struct RelayedPart {
  std::size_t line = 0;
  std::size_t way = 0;  ///< line of the pair
  double share = 0;
};

enum class RelayedHop : std::uint8_t { kInside, kToPair, kAcross, kFromPair };

/// Of a tree over all ranks.
struct RelayedArc {
  Rank parent;
  Rank child;
  RelayedHop hop = RelayedHop::kInside;
  bool is_far = false;  ///< the child is of the group that the root is not of
};

class RelayedLines {
 public:
  RelayedLines(const topology::Topology& topology, topology::Router& router)
      : topology_(topology),
        router_(router),
        groups_(ring_of_groups(topology)),
        count_(ring_lines(groups_)) {}

  /// Whether there are slow pairs, and shares are found.
  bool find() {
    std::vector<Bandwidth> rates;
    for (const std::vector<Bandwidth>& of_line :
         line_rates(topology_, router_, groups_, count_, LinesOverRanks::kLeftOut)) {
      rates.push_back(of_line.front());  // as much as the other group's
    }
    const Bandwidth best = *std::ranges::max_element(rates);
    const auto is_slow = [&](std::size_t line) { return rates[line] < scaled(best, kSlowShare); };
    PartLoads loads(topology_);
    for (std::size_t line = 0; line < count_; ++line) {
      for (std::size_t way = 0; way < count_; ++way) {
        if (way == line ? rates[line] > Bandwidth(0) : is_slow(line) && !is_slow(way)) {
          parts_.push_back({line, way, 0});
          add_loads(parts_.back(), loads);
        }
      }
    }
    if (std::ranges::all_of(parts_,
                            [](const RelayedPart& part) { return part.line == part.way; })) {
      return false;
    }
    const auto shares = loads.best_shares();
    if (!shares) {
      return false;
    }
    seconds_per_byte_ = loads.time(*shares);
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      parts_[part].share = (*shares)[part];
    }
    std::erase_if(parts_, [&](const RelayedPart& part) {
      return part.share * static_cast<double>(count_) < kWorthAWay;
    });
    return true;
  }

  /// Of the buffer, at least; the program's.
  double seconds_per_byte() const { return seconds_per_byte_; }

  std::vector<RelayedPart> of_line(std::size_t line) const {
    std::vector<RelayedPart> all;
    std::ranges::copy_if(parts_, std::back_inserter(all),
                         [&](const RelayedPart& part) { return part.line == line; });
    return all;
  }
  std::size_t count() const { return count_; }
  /// Of the buffer, by a line.
  double largest_share() const {
    double largest = 0;
    for (std::size_t line = 0; line < count_; ++line) {
      largest = std::max(largest, share_of(line));
    }
    return largest;
  }
  /// Of all lines at both roots.
  std::int64_t transfers_of_a_piece() const {
    std::size_t used = 0;
    for (std::size_t line = 0; line < count_; ++line) {
      used += share_of(line) > 0 ? 1 : 0;
    }
    return static_cast<std::int64_t>(4 * used * (topology_.rank_count() - 1));
  }
  double share_of(std::size_t line) const {
    double share = 0;
    for (const RelayedPart& part : parts_) {
      share += part.line == line ? part.share : 0;
    }
    return share;
  }

  /// From the root on, which is member `line` of a group.
  std::vector<RelayedArc> tree(std::size_t line, std::size_t way, std::size_t root_group) const {
    const std::size_t far_group = 1 - root_group;
    const Rank root = member(root_group, line);
    const Rank head = member(far_group, line);
    const Rank out = member(root_group, way);
    const Rank in = member(far_group, way);
    std::vector<RelayedArc> arcs;
    if (out != root) {
      arcs.push_back({root, out, RelayedHop::kToPair, false});
    }
    arcs.push_back({out, in, RelayedHop::kAcross, true});
    if (in != head) {
      arcs.push_back({in, head, RelayedHop::kFromPair, true});
    }
    add_inside(root_group, line, out, false, arcs);
    add_inside(far_group, line, in, true, arcs);
    return arcs;
  }

 private:
  Rank member(std::size_t group, std::size_t line) const {
    return member_on_line(groups_[group], line);
  }

  void add_inside(std::size_t group, std::size_t line, Rank of_pair, bool is_far,
                  std::vector<RelayedArc>& arcs) const {
    const Rank head = member(group, line);
    for (std::size_t offset = 1; offset < groups_[group].ranks.size(); ++offset) {
      if (const Rank rank = member(group, line + offset); rank != of_pair) {
        arcs.push_back({head, rank, RelayedHop::kInside, is_far});
      }
    }
  }

  void add_loads(const RelayedPart& part, PartLoads& loads) {
    for (const std::size_t root_group : {0, 1}) {
      for (const RelayedArc& arc : tree(part.line, part.way, root_group)) {
        loads.cross(router_.route(arc.child, arc.parent), 0.5);
        loads.cross(router_.route(arc.parent, arc.child), 0.5);
      }
    }
    loads.end_part();
  }

  const topology::Topology& topology_;
  topology::Router& router_;
  std::vector<topology::RankGroup> groups_;
  std::size_t count_ = 0;  ///< of lines
  std::vector<RelayedPart> parts_;
  double seconds_per_byte_ = 0;
};

/// Of a line's pieces, over their sum.
std::vector<double> relayed_sizes(std::size_t pieces) {
  std::vector<double> sizes(pieces, 1);
  const std::size_t last = pieces / kLastRelayed;
  for (std::size_t i = 0; i < last; ++i) {
    sizes[pieces - 1 - i] = kSmallestRelayed + (1 - kSmallestRelayed) * static_cast<double>(i) /
                                                   static_cast<double>(last);
  }
  const double whole = std::accumulate(sizes.begin(), sizes.end(), 0.0);
  for (double& size : sizes) {
    size /= whole;
  }
  return sizes;
}

/// One all-reduce being made.
class RelayedExchange {
 public:
  RelayedExchange(const RelayedLines& lines, const ScheduleRequest& request, std::size_t pieces)
      : lines_(lines), request_(request), moves_(request.topology.rank_count(), kUnitsOfRelayed) {
    const std::vector<double> sizes = relayed_sizes(pieces);
    for (std::size_t line = 0; line < lines.count(); ++line) {
      add_line(line, sizes);
    }
  }

  plan::TransferGraph make() const { return moves_.graph("hierarchical", request_); }

 private:
  /// The way that lacks most of its share takes the next piece.
  void add_line(std::size_t line, const std::vector<double>& sizes) {
    const std::vector<RelayedPart> ways = lines_.of_line(line);
    const double share = lines_.share_of(line);
    std::vector<double> lack(ways.size());
    for (std::size_t number = 0; number < sizes.size() && share > 0; ++number) {
      for (const std::size_t root_group : {0, 1}) {
        const double half = sizes[number] / 2;
        for (std::size_t i = 0; i < ways.size(); ++i) {
          lack[i] += ways[i].share * half;
        }
        const auto most =
            static_cast<std::size_t>(std::distance(lack.begin(), std::ranges::max_element(lack)));
        lack[most] -= share * half;
        moves_.begin_chunk(share * half);
        add_moves(lines_.tree(line, ways[most].way, root_group), static_cast<double>(number));
      }
    }
  }

  /// Up the tree as sums, and down as copies.
  void add_moves(const std::vector<RelayedArc>& arcs, double turn) {
    const bool is_relayed = std::ranges::any_of(arcs, [](const RelayedArc& arc) {
      return arc.hop == RelayedHop::kToPair || arc.hop == RelayedHop::kFromPair;
    });
    for (auto arc = arcs.rbegin(); arc != arcs.rend(); ++arc) {
      moves_.reduce(arc->child, arc->parent, turn + turn_of_sum(arc->hop));
    }
    for (const RelayedArc& arc : arcs) {
      moves_.copy(arc.parent, arc.child,
                  turn + kFirstCopies + kCopyHop * hops_before(arc, is_relayed));
    }
  }

  static double turn_of_sum(RelayedHop hop) {
    switch (hop) {
      case RelayedHop::kInside:
        break;
      case RelayedHop::kFromPair:
        return kTurnOfPair;
      case RelayedHop::kAcross:
        return kTurnAcross;
      case RelayedHop::kToPair:
        return kTurnFromPair;
    }
    return 0;
  }

  /// Copies inside a group come last.
  static double hops_before(const RelayedArc& arc, bool is_relayed) {
    switch (arc.hop) {
      case RelayedHop::kToPair:
        return 0;
      case RelayedHop::kAcross:
        return is_relayed ? 1 : 0;
      case RelayedHop::kFromPair:
        return 2;
      case RelayedHop::kInside:
        break;
    }
    return !arc.is_far ? 1 : is_relayed ? 4 : 2;
  }

  const RelayedLines& lines_;
  const ScheduleRequest& request_;
  TimedMoves moves_;  ///< by turn
};

/// By the form in the fewest pieces. Links carry as much whichever group has the root, so no ways
/// that pieces take load them less than the program's.
FormShape relayed_in_more(const CollectiveForm& few, const RelayedLines& lines,
                          std::size_t pieces) {
  FormShape shape = few.shape();
  const auto times = static_cast<std::int64_t>(2 * pieces);
  const std::vector<double> sizes = relayed_sizes(pieces);
  shape.largest_share = lines.largest_share() / 2 * *std::ranges::max_element(sizes);
  shape.transfers = static_cast<std::int64_t>(pieces) * lines.transfers_of_a_piece();
  shape.bound->seconds_per_element =
      std::min(shape.bound->seconds_per_element,
               kTimeOfRelayed * lines.seconds_per_byte() * bytes_of_an_element(few.graph()));
  shape.bound->alpha = {};
  shape.bound->rounding = shape.bound->rounding * times;
  shape.bound->fewest_elements *= times;
  return shape;
}

}  // namespace

std::vector<CollectiveForm> relayed_exchange_forms(const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  const topology::Topology& topology = request.topology;
  if (refuse_group_rings(topology, request.codecs) || tier_groups(topology).size() != 2 ||
      !are_ranks_unlike(topology)) {
    return forms;
  }
  const auto lines = std::make_shared<RelayedLines>(topology, request.router);
  if (!lines->find()) {
    return forms;
  }
  for (const std::size_t pieces : kRelayedPieces) {
    const auto transfers = static_cast<std::int64_t>(pieces) * lines->transfers_of_a_piece();
    if (pieces > request.most_rounds ||
        transfers > static_cast<std::int64_t>(request.most_transfers)) {
      break;
    }
    const auto make = [lines, request, pieces] {
      return with_mechanism(RelayedExchange(*lines, request, pieces).make(),
                            "exchange relayed around slow links, " + in_rounds_text(pieces));
    };
    if (forms.empty()) {
      forms.emplace_back(make(), topology);
    } else {
      forms.emplace_back(relayed_in_more(forms.front(), *lines, pieces), make);
    }
  }
  return forms;
}

}  // namespace rackrail::planner
