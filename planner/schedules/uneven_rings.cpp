#include "planner/schedules/uneven_rings.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "planner/forest/colours.hpp"
#include "planner/schedules/group_rings.hpp"
#include "planner/schedules/timed_moves.hpp"
#include "planner/schedules/uneven_lines.hpp"

namespace rackrail::planner {

namespace {

constexpr double kUnitsOfBuffer = 1U << 24U;
constexpr double kTimeOfWeights = 0.999;  // of what exact weights would take, at least
constexpr std::size_t kTimesMoreUneven = 3;
constexpr std::size_t kMostTransfersUneven = 600'000;
constexpr std::size_t kMessagesOfLeaf = 6;  // under way at once
constexpr double kOuterPiece = 0.5;         // the first and the last of a ring, of the others
// As shares of the whole time.
constexpr double kRingsReduce = 0.5;  // until then
constexpr double kLeavesSum = 0.45;   // likewise
constexpr double kJustBefore = 1e-6;

struct UnevenPieces {
  std::size_t of_ring = 1;
  std::size_t waves = 1;
};
constexpr UnevenPieces kUnevenPieces[] = {{1, 4}, {2, 6}, {3, 8}, {4, 8}, {6, 8}, {8, 8}, {10, 8}};

/// A part of the buffer, when it is moved, and along what.
struct TimedPiece {
  const LineTrees* line = nullptr;
  const GroupTree* tree = nullptr;
  std::uint32_t number = 0;
  double share = 0;  ///< of the buffer
  // As shares of the whole time.
  double reduce = 0;
  double gather = 0;
  double hop = 0;
};

/// One all-reduce being made.
class UnevenRings {
 public:
  UnevenRings(const UnevenLines& lines, const ScheduleRequest& request, const UnevenPieces& pieces)
      : lines_(lines), request_(request), moves_(request.topology.rank_count(), kUnitsOfBuffer) {
    for (const LineTrees& line : lines_.lines) {
      for (const TimedPiece& piece :
           pieces_of(line, line.has_leaves ? pieces.waves : pieces.of_ring)) {
        moves_.begin_chunk(piece.share);
        reduce(piece);
        gather(piece);
      }
    }
  }

  plan::TransferGraph make() const {
    std::map<std::pair<Rank, std::uint32_t>, std::uint32_t>
        passed_on;  // the last, by piece of a ring
    std::map<Rank, std::vector<std::uint32_t>> of_leaf;
    return moves_.graph(
        "hierarchical", request_,
        [&](std::uint32_t number, const TimedMove& move, std::vector<std::uint32_t>& after) {
          const auto hop = hops_.find(number);
          if (hop == hops_.end()) {
            return;
          }
          const auto& [kind, piece] = hop->second;
          if (kind == UnevenHop::kInside) {
            if (const auto last = passed_on.find({move.src, piece}); last != passed_on.end()) {
              after.push_back(last->second);
            }
          } else if (kind == UnevenHop::kAlongRing) {
            passed_on[{move.src, piece}] = number;
          } else {
            std::vector<std::uint32_t>& sent = of_leaf[move.src];
            if (sent.size() >= kMessagesOfLeaf) {
              after.push_back(sent[sent.size() - kMessagesOfLeaf]);
            }
            sent.push_back(number);
          }
        });
  }

 private:
  /// Sums that wait for others of their sender: inside a group, until what it passed on of the same
  /// piece before has left.
  enum class UnevenHop : std::uint8_t { kInside, kAlongRing, kOfLeaf };
  struct SumHop {
    UnevenHop kind = UnevenHop::kInside;
    std::uint32_t piece = 0;  ///< of a ring; 0 where the line has leaves
  };

  std::vector<TimedPiece> pieces_of(const LineTrees& line, std::size_t count) const {
    std::vector<TimedPiece> pieces;
    // Nothing goes while the first piece of a ring is summed, or the last one copied.
    std::vector<double> sizes(count, 1);
    if (!line.has_leaves && count > 2) {
      sizes.front() = sizes.back() = kOuterPiece;
    }
    const double whole = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    const auto hops = static_cast<double>(lines_.groups.size());
    const auto trees = static_cast<double>(line.trees.size());
    double before = 0;
    for (std::size_t number = 0; number < count; ++number) {
      const double share = sizes[number] / whole;
      const double wave = 1 / static_cast<double>(count + 1);
      const double hop = line.has_leaves ? wave / hops : kRingsReduce / hops;
      const double reduce = line.has_leaves ? static_cast<double>(number) * wave : before * hop;
      for (const GroupTree& tree : line.trees) {
        pieces.push_back({&line, &tree, static_cast<std::uint32_t>(number),
                          line.share / trees * share, reduce,
                          reduce + (line.has_leaves ? wave : kRingsReduce), hop});
      }
      before += share;
    }
    return pieces;
  }

  /// Everything at the root, by way of the mirror image of the tree.
  void reduce(const TimedPiece& piece) {
    const GroupTree& tree = *piece.tree;
    auto time = piece.reduce;
    for (auto hop = tree.path.rbegin(); hop != tree.path.rend(); ++hop, time += piece.hop) {
      sum_inside(piece, hop->to, time - piece.hop);
      pass_to(piece, hop->to, hop->from, time, false);
    }
    for (const std::size_t leaf : tree.leaves) {
      const double turn = piece.reduce + turn_of(piece);
      sum_inside(piece, leaf, turn - piece.hop);
      pass_to(piece, leaf, tree.root, turn, true);
    }
    sum_inside(piece, tree.root, time - piece.hop);
  }

  void gather(const TimedPiece& piece) {
    const GroupTree& tree = *piece.tree;
    auto time = piece.gather;
    copy_inside(piece, tree.root, time);
    for (const std::size_t leaf : tree.leaves) {
      const double turn = piece.gather + turn_of(piece);
      moves_.copy(head(piece, tree.root), head(piece, leaf), turn);
      copy_inside(piece, leaf, turn + piece.hop);
    }
    for (const GroupHop& hop : tree.path) {
      moves_.copy(head(piece, hop.from), head(piece, hop.to), time);
      time += piece.hop;
      copy_inside(piece, hop.to, time);
    }
  }

  /// Leaves exchange with one root after the other.
  double turn_of(const TimedPiece& piece) const {
    return static_cast<double>(piece.tree->root) / static_cast<double>(lines_.groups.size()) *
           static_cast<double>(piece.tree->path.size()) * piece.hop;
  }

  Rank head(const TimedPiece& piece, std::size_t group) const {
    return lines_.member(group, piece.line->line);
  }

  void sum_inside(const TimedPiece& piece, std::size_t group, double time) {
    const std::size_t line = piece.line->line;
    for (std::size_t offset = 1; offset < lines_.groups[group].ranks.size(); ++offset) {
      const std::uint32_t move =
          moves_.reduce(lines_.member(group, line + offset), head(piece, group),
                        piece.line->has_leaves ? kLeavesSum * time : time - kJustBefore);
      hops_[move] = {UnevenHop::kInside, piece.line->has_leaves ? 0 : piece.number};
    }
  }

  void pass_to(const TimedPiece& piece, std::size_t from, std::size_t to, double time,
               bool is_of_leaf) {
    const std::uint32_t move = moves_.reduce(head(piece, from), head(piece, to), time);
    if (is_of_leaf) {
      hops_[move] = {UnevenHop::kOfLeaf, 0};
    } else if (!piece.line->has_leaves) {
      hops_[move] = {UnevenHop::kAlongRing, piece.number};
    }
  }

  void copy_inside(const TimedPiece& piece, std::size_t group, double time) {
    const std::size_t line = piece.line->line;
    for (std::size_t offset = 1; offset < lines_.groups[group].ranks.size(); ++offset) {
      moves_.copy(
          head(piece, group), lines_.member(group, line + offset),
          piece.line->has_leaves ? kRingsReduce + (1 - kRingsReduce) * time : time + kJustBefore);
    }
  }

  const UnevenLines& lines_;
  const ScheduleRequest& request_;
  TimedMoves moves_;
  std::unordered_map<std::uint32_t, SumHop> hops_;  ///< by move
};

std::size_t transfers_of(const UnevenLines& lines, const UnevenPieces& pieces, std::size_t ranks) {
  std::size_t chunks = 0;
  for (const LineTrees& line : lines.lines) {
    chunks += line.trees.size() * (line.has_leaves ? pieces.waves : pieces.of_ring);
  }
  return 2 * (ranks - 1) * chunks;
}

/// Of the buffer, by the shares that pieces have on average, and what outer ones leave the others.
double largest_share_of(const UnevenLines& lines, const UnevenPieces& pieces) {
  double largest = 0;
  for (const LineTrees& line : lines.lines) {
    const auto count = static_cast<double>(line.has_leaves ? pieces.waves : pieces.of_ring);
    const double outer = !line.has_leaves && count > 2 ? 2 * (1 - kOuterPiece) : 0;
    largest =
        std::max(largest, line.share / static_cast<double>(line.trees.size()) / (count - outer));
  }
  return largest;
}

/// By one in few pieces: its bound, without latencies.
FormShape in_more_pieces(const FormShape& few, const UnevenLines& lines, const UnevenPieces& pieces,
                         std::size_t transfers) {
  FormShape shape = few;
  const auto times = static_cast<std::int64_t>(2 * std::max(pieces.of_ring, pieces.waves));
  shape.largest_share = largest_share_of(lines, pieces);
  shape.transfers = static_cast<std::int64_t>(transfers);
  shape.bound->seconds_per_element *= kTimeOfWeights;
  shape.bound->alpha = {};
  shape.bound->rounding = shape.bound->rounding * times;
  shape.bound->fewest_elements *= times;
  return shape;
}

}  // namespace

std::vector<CollectiveForm> uneven_ring_forms(const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  if (refuse_group_rings(request.topology, request.codecs) || !are_ranks_unlike(request.topology)) {
    return forms;
  }
  auto found = uneven_lines(request.topology, request.router);
  if (!found) {
    return forms;
  }
  const auto lines = std::make_shared<const UnevenLines>(*std::move(found));
  const std::size_t most =
      std::max(request.most_transfers,
               std::min(kTimesMoreUneven * request.most_transfers, kMostTransfersUneven));
  for (const UnevenPieces& pieces : kUnevenPieces) {
    const std::size_t transfers = transfers_of(*lines, pieces, request.topology.rank_count());
    if (transfers > most || pieces.waves > request.most_rounds) {
      break;
    }
    const auto make = [lines, request, pieces] {
      return with_mechanism(UnevenRings(*lines, request, pieces).make(),
                            "rings that spare slow links, " + in_rounds_text(pieces.waves));
    };
    if (forms.empty()) {
      forms.emplace_back(make(), request.topology);
    } else {
      forms.emplace_back(in_more_pieces(forms.front().shape(), *lines, pieces, transfers), make);
    }
  }
  return forms;
}

}  // namespace rackrail::planner
