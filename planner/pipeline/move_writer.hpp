// The writer of transfer graphs: an algorithm says what moves where, in any order that follows the
// data; what each move waits for, and when it has its turn, follows from that.
//
//   MoveWriter writer("star", request);
//   writer.begin_chunks({1});
//   writer.reduce(leaf, centre, {0, 1});  // for each leaf
//   writer.copy(centre, leaf, {0, 1});    // waits for all sums
//   plan::TransferGraph graph = writer.take();
//
// A move waits for what its sender has of its chunks: all sums that came, or the one copy that
// replaced them; where these are very many, for a copy that waited for them. With a lossy codec the
// sender of a copy goes on with what the receiver decodes (rule 6 of plan/transfer_graph.hpp): what
// it sends of the chunk in another form comes after what it sent before. Chunks that begin together
// may be moved together, as far as they are neighbours: such a move waits for what any of them
// waits for.
//
// Turns order moves that leave a rank for the same one, and additions (rules 4 and 5). The usual
// turn of a move is the number of moves in a row that come before it, so that pieces of a pipeline
// follow one another; or it is given, as a time. None is earlier than what it waits for. Of moves
// with the same turn those that were given first come first.
//
// O(moves · log moves + pairs of a move and a chunk that it moves).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/pipeline/builder.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

class MoveWriter {
 public:
  using Range = GraphBuilder::Range;
  using Numbers = std::vector<std::uint32_t>;
  struct Move {
    plan::TransferOp op = plan::TransferOp::kReduce;
    Rank src;
    Rank dst;
    Range range;  ///< of all chunks
    double turn = 0;
    std::uint32_t after_begin = 0;  ///< what it waits for: numbers of moves
    std::uint32_t after_end = 0;
  };

  /// The request's topology and router must outlive the writer.
  MoveWriter(std::string name, const ScheduleRequest& request,
             plan::Collective what = plan::Collective::kAllReduce);

  /// What follows moves these chunks; their numbers in ranges count from 0 on. Owners: none of an
  /// all-reduce.
  void begin_chunks(std::span<const std::uint32_t> weights, std::span<const Rank> owners = {});

  /// A move's number: they count from 0 on. `more`: numbers of moves that it waits for as well,
  /// which its sender can see (rule 3).
  std::uint32_t reduce(Rank src, Rank dst, Range range, std::optional<double> turn = {},
                       std::span<const std::uint32_t> more = {}) {
    return add(plan::TransferOp::kReduce, src, dst, range, turn, more);
  }
  std::uint32_t copy(Rank src, Rank dst, Range range, std::optional<double> turn = {},
                     std::span<const std::uint32_t> more = {}) {
    return add(plan::TransferOp::kCopy, src, dst, range, turn, more);
  }

  /// Each of these ranks, two or more in ascending order, sends what it has of the range to all
  /// others, and they add it (rule 9); the moves have one turn.
  void mutual_sum(std::span<const Rank> members, Range range);

  /// From now on usual turns are later by so much of one, and so are those of what waits for such
  /// moves: to order what would have its turn at the same time.
  void delay(double by) { delay_ = by; }

  /// Adds to what a move waits for others that are before it in order. Asked for each move once, in
  /// this order.
  using WaitMore = std::function<void(std::uint32_t number, const Move& move, Numbers& after)>;
  plan::TransferGraph take(const WaitMore& wait_more = {});

 private:
  /// A list of moves, the last one first: indices into nodes_.
  struct Node {
    std::uint32_t move = 0;
    std::uint32_t next = 0;
  };
  /// What a rank has of a chunk.
  struct Here {
    std::uint32_t came = 0;  ///< a list: what brought it
    std::uint32_t sent = 0;  ///< copies of it
  };

  std::uint32_t add(plan::TransferOp op, Rank src, Rank dst, Range range,
                    std::optional<double> turn, std::span<const std::uint32_t> more);
  bool is_same_form(const Move& one, const Move& other) const;
  void put(Move move);
  void collect(const Move& move, std::span<const std::uint32_t> more);
  const plan::Codec& codec(Rank src, Rank dst) const;
  Here& here(Rank rank, std::uint32_t chunk) { return here_[rank.index() * chunks_ + chunk]; }
  std::uint32_t prepended(std::uint32_t move, std::uint32_t list) {
    nodes_.push_back({move, list});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }

  std::string name_;
  ScheduleRequest request_;
  plan::Collective what_;
  bool has_codecs_;
  std::vector<std::uint32_t> group_of_;  ///< by rank, for codecs
  std::vector<std::uint32_t> weights_;
  std::vector<Rank> owners_;
  std::vector<Move> moves_;
  Numbers afters_;                                             ///< of all moves
  std::vector<std::pair<std::uint32_t, std::uint32_t>> sums_;  ///< mutual ones: first move, count
  std::uint32_t first_ = 0;                                    ///< of the chunks that began last
  std::uint32_t chunks_ = 0;                                   ///< how many began last
  std::vector<Here> here_;                                     ///< by rank and chunk
  std::vector<Node> nodes_;                                    ///< the first one ends lists
  Numbers waits_;                                              ///< of the move that is being added
  double delay_ = 0;                                           ///< of usual turns
};

}  // namespace rackrail::planner
