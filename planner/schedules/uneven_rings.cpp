#include "planner/schedules/uneven_rings.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "planner/forest/colours.hpp"
#include "planner/schedules/builder.hpp"
#include "planner/schedules/group_rings.hpp"
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
  std::uint32_t chunk = 0;
  std::uint32_t number = 0;
  // As shares of the whole time.
  double reduce = 0;
  double gather = 0;
  double hop = 0;
};

struct TimedMove {
  double time = 0;
  plan::TransferOp op = plan::TransferOp::kReduce;
  Rank src;
  Rank dst;
  const TimedPiece* piece = nullptr;
  std::vector<std::uint32_t> after;  ///< moves
  bool is_held = false;              ///< until what its sender passed on before has left
  bool is_passed_on = false;         ///< along a ring, to be added
  bool is_of_leaf = false;           ///< what it adds
};

/// One all-reduce being made.
class UnevenRings {
 public:
  UnevenRings(const UnevenLines& lines, const ScheduleRequest& request, const UnevenPieces& pieces)
      : lines_(lines), request_(request), at_(request.topology.rank_count()) {
    for (const LineTrees& line : lines_.lines) {
      add_pieces(line, line.has_leaves ? pieces.waves : pieces.of_ring);
    }
    for (const TimedPiece& piece : pieces_) {
      for (auto& at_rank : at_) {
        at_rank.clear();
      }
      reduce(piece);
      gather(piece);
    }
  }

  plan::TransferGraph make() {
    std::vector<std::uint32_t> order(moves_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return moves_[a].time < moves_[b].time;
    });
    GraphBuilder builder("hierarchical", request_, weights_);
    std::vector<TransferId> ids(moves_.size());
    for (const std::uint32_t m : order) {
      const TimedMove& move = moves_[m];
      std::vector<TransferId> after;
      for (const std::uint32_t before : move.after) {
        after.push_back(ids[before]);
      }
      wait_for_own(move, after);
      const GraphBuilder::Range range{move.piece->chunk, 1};
      ids[m] = move.op == plan::TransferOp::kReduce
                   ? builder.reduce(move.src, move.dst, range, after)
                   : builder.copy(move.src, move.dst, range, after);
      if (move.is_passed_on) {
        passed_on_[{move.src, move.piece->number}] = ids[m];
      }
      if (move.is_of_leaf) {
        of_leaf_[move.src].push_back(ids[m]);
      }
    }
    return builder.take();
  }

 private:
  void wait_for_own(const TimedMove& move, std::vector<TransferId>& after) const {
    if (move.is_held) {
      const std::uint32_t number = move.piece->line->has_leaves ? 0 : move.piece->number;
      if (const auto last = passed_on_.find({move.src, number}); last != passed_on_.end()) {
        after.push_back(last->second);
      }
    }
    if (move.is_of_leaf) {
      const auto sent = of_leaf_.find(move.src);
      if (sent != of_leaf_.end() && sent->second.size() >= kMessagesOfLeaf) {
        after.push_back(sent->second[sent->second.size() - kMessagesOfLeaf]);
      }
    }
  }

  void add_pieces(const LineTrees& line, std::size_t count) {
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
        pieces_.push_back({&line, &tree, static_cast<std::uint32_t>(weights_.size()),
                           static_cast<std::uint32_t>(number), reduce,
                           reduce + (line.has_leaves ? wave : kRingsReduce), hop});
        const auto weight = std::llround(kUnitsOfBuffer * line.share / trees * share);
        weights_.push_back(static_cast<std::uint32_t>(std::max<std::int64_t>(1, weight)));
      }
      before += share;
    }
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
      copy(piece, head(piece, tree.root), head(piece, leaf), turn);
      copy_inside(piece, leaf, turn + piece.hop);
    }
    for (const GroupHop& hop : tree.path) {
      copy(piece, head(piece, hop.from), head(piece, hop.to), time);
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
      const Rank src = lines_.member(group, line + offset);
      const Rank dst = head(piece, group);
      at_[dst.index()].push_back(
          add({.time = piece.line->has_leaves ? kLeavesSum * time : time - kJustBefore,
               .op = plan::TransferOp::kReduce,
               .src = src,
               .dst = dst,
               .piece = &piece,
               .after = {},
               .is_held = true}));
    }
  }

  void pass_to(const TimedPiece& piece, std::size_t from, std::size_t to, double time,
               bool is_of_leaf) {
    const Rank src = head(piece, from);
    const Rank dst = head(piece, to);
    at_[dst.index()].push_back(add({.time = time,
                                    .op = plan::TransferOp::kReduce,
                                    .src = src,
                                    .dst = dst,
                                    .piece = &piece,
                                    .after = at_[src.index()],
                                    .is_passed_on = !piece.line->has_leaves,
                                    .is_of_leaf = is_of_leaf}));
  }

  void copy_inside(const TimedPiece& piece, std::size_t group, double time) {
    const std::size_t line = piece.line->line;
    for (std::size_t offset = 1; offset < lines_.groups[group].ranks.size(); ++offset) {
      copy(piece, head(piece, group), lines_.member(group, line + offset),
           piece.line->has_leaves ? kRingsReduce + (1 - kRingsReduce) * time : time + kJustBefore);
    }
  }

  void copy(const TimedPiece& piece, Rank src, Rank dst, double time) {
    at_[dst.index()] = {add({.time = time,
                             .op = plan::TransferOp::kCopy,
                             .src = src,
                             .dst = dst,
                             .piece = &piece,
                             .after = at_[src.index()]})};
  }

  std::uint32_t add(TimedMove move) {
    for (const std::uint32_t before : move.after) {
      move.time = std::max(move.time, moves_[before].time);
    }
    moves_.push_back(std::move(move));
    return static_cast<std::uint32_t>(moves_.size() - 1);
  }

  const UnevenLines& lines_;
  const ScheduleRequest& request_;
  std::vector<std::uint32_t> weights_;  ///< of chunks
  std::vector<TimedPiece> pieces_;
  std::vector<TimedMove> moves_;
  std::vector<std::vector<std::uint32_t>> at_;  ///< by rank, what the piece there waits for
  std::map<std::pair<Rank, std::uint32_t>, TransferId> passed_on_;  ///< last, by piece of a ring
  std::map<Rank, std::vector<TransferId>> of_leaf_;
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
      return UnevenRings(*lines, request, pieces).make();
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
