// In which order the moves of pipelined trees take their turns on the links.
//
// Moves of a pair of ranks over one route are sent in the order that a plan fixes (rule 5 of
// plan/transfer_graph.hpp), so that order decides whether a link waits for a move that is not there
// yet while others are. It is found by list scheduling: time is gone through with links shared
// evenly (or at rates that the plan holds routes to), and whenever a pair can send, it takes the
// most urgent of the moves that are ready. What follows a move waits for its latency, and for its
// addition. A move is as urgent as the chain of moves behind it is long (Hu, "Parallel Sequencing
// and Assembly Line Problems", 1961); later pieces may be due later, which starts what a reduction
// feeds early. How much later is best depends on the trees: a few times are tried.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

/// What is sent of a part of the data, piece by piece.
struct Move {
  std::int64_t weight = 0;                  ///< its share of the data, in any unit
  const topology::Route* route = nullptr;   ///< links that it takes
  std::vector<std::uint32_t> predecessors;  ///< moves of the same part, of smaller index
  /// From when it is sent until what waits for it may begin: seconds, and more for each byte.
  double latency = 0;
  double seconds_per_byte = 0;
  std::uint32_t part = 0;
  /// What of the part it moves, in any numbers: what moves the same passes on slices of a piece.
  std::uint32_t chunk = 0;
};

/// How the parts of the data are cut into pieces.
struct Cuts {
  std::vector<std::vector<std::int64_t>> sizes;  ///< of each part's pieces, in any unit, in order
  /// Whether parts take turns, so that what a link carries is even from one piece to the next, and
  /// ranks send pieces of the same trees at about the same time. Else the first pieces of all parts
  /// are due at once, and those with more moves behind them go first.
  bool take_turns = false;
  /// Of each piece of a move: what moves the same chunk goes on with the first one.
  std::uint32_t slices = 1;
};

struct Turn {
  std::uint32_t move = 0;
  std::uint32_t piece = 0;
};

/// Which of the moves of a pair goes first.
enum class Pace : std::uint8_t {
  kStages,       ///< the one that would be ready first if every move took as long
  kRatedStages,  ///< likewise, and every route has a rate of its own
  kUrgent,       ///< the more urgent one, see above: best for a large collective alone
  kRated,        ///< likewise, and every route has a rate of its own
  /// As urgent, but the parts take turns with pieces of about one size, the last ones as large as
  /// all.
  kEvenTurns,
  /// In turns at rates of routes, of which none has much more than it needs: what shallow trees sum
  /// up in hosts would else be there long before its turn, and devices add it before what arrives.
  kRatedTurns,
};

constexpr bool are_in_stages(Pace pace) {
  return pace == Pace::kStages || pace == Pace::kRatedStages;
}
/// Whether every route has a rate of its own.
constexpr bool has_rates(Pace pace) {
  return pace == Pace::kRated || pace == Pace::kRatedTurns || pace == Pace::kRatedStages;
}
/// Cuts::take_turns.
constexpr bool take_turns(Pace pace) {
  return pace == Pace::kEvenTurns || pace == Pace::kRatedTurns;
}

/// Moves of parts that are cut into as many rounds each, in the order of their stages: a move's
/// stage is the number of moves in a row that come before it, plus its round.
std::vector<Turn> in_stages(const std::vector<Move>& moves, std::size_t rounds);

/// A rate for each move, equal on equal routes, at which all moves would go on side by side without
/// a link being asked for more than it has: the max-min fair rates of routes that
/// count in proportion to what they carry, by progressive filling (Bertsekas and Gallager, "Data
/// Networks", 1992). So the links that bind are full, and all routes are done at the same time.
/// None has more than `most` times what it needs to be done with the slowest; 0: no limit.
std::vector<Bandwidth> proportional_rates(const std::vector<Move>& moves,
                                          const topology::Topology& topology, double most = 0);

/// All moves of all pieces in the order of their starts; a move comes after its predecessors of the
/// same piece. In all pieces together a unit of weight is `bytes`; with 0, nothing has a latency.
/// `rates` are the moves' own, which links need not share then; none: rank pairs share links
/// evenly.
std::vector<Turn> paced(const std::vector<Move>& moves, const Cuts& cuts,
                        const topology::Topology& topology, double bytes = 0,
                        const std::vector<Bandwidth>& rates = {});

}  // namespace rackrail::planner
