// The writer of pipelines: parts of the data, each cut into pieces, of which all take the same
// moves.
//
//   PipelineWriter writer("star", request);
//   writer.begin_part(centre, 1, {1, 1, 1}, std::array{1U, 1U, 1U});  // one part in three pieces
//   writer.move(plan::TransferOp::kReduce, leaf, centre);             // for each leaf
//   writer.move(plan::TransferOp::kCopy, centre, leaf);               // waits for all sums
//   plan::TransferGraph graph = writer.take(Pace::kUrgent);
//
// Moves are given in an order that follows the data; what each waits for follows from it: all sums
// that came to its sender, or the one copy that replaced them. Transfers of a pair of ranks over
// one route leave in the order of their ids, so a pair that passes on several parts has to take
// turns: all pieces go in the order of pacing.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/packing/pacing.hpp"
#include "planner/pipeline/builder.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

/// What the last pieces of a part are: links empty when they come.
inline constexpr std::size_t kLastPieces = 3;

class PipelineWriter {
 public:
  using Range = GraphBuilder::Range;

  /// The request's topology and router must outlive it.
  PipelineWriter(std::string name, const ScheduleRequest& request,
                 plan::Collective what = plan::Collective::kAllReduce);

  /// What follows moves this part: its weight in any unit, its pieces by their sizes in any unit,
  /// and the weights of all of their chunks, as many in each piece. `weight` is that of one chunk
  /// of each piece.
  void begin_part(Rank owner, std::int64_t weight, std::vector<std::int64_t> sizes,
                  std::span<const std::uint32_t> chunk_weights);

  /// Chunks of each piece, on a route that outlives the writer, or on the pair's usual one.
  void move(plan::TransferOp op, Rank src, Rank dst, Range of_piece = {},
            const topology::Route* route = nullptr);
  /// One operation of switches: all leaves to the root, or from it. Routes are by leaf, `links`
  /// what all of them pass; both outlive the writer.
  void operation(plan::TransferOp op, Rank root, std::span<const Rank> leaves,
                 std::span<const topology::Route> routes, const topology::Route& links);

  /// Once. The order is made for so many slices of the largest transfers. Rates are of all pieces
  /// but the last ones: when these come links empty, and what is left may use them as it can. In
  /// few rounds, as buckets of a step have, others follow, and all have rates.
  plan::TransferGraph take(Pace pace, std::uint32_t slices = 1);

 private:
  using Numbers = std::vector<std::uint32_t>;

  /// What goes from rank to rank of each piece.
  struct Message {
    Rank src;
    Rank dst;
    const topology::Route* route = nullptr;  ///< null: the usual one
    Numbers after;                           ///< messages
  };
  /// One message or several, all or none of which go.
  struct Step {
    plan::TransferOp op = plan::TransferOp::kReduce;
    Range of_piece;
    std::uint32_t first = 0;  ///< of its messages
    std::uint32_t count = 0;
  };
  struct Part {
    std::uint32_t first_chunk = 0;
    std::uint32_t chunks = 1;  ///< of a piece
  };

  std::uint32_t part() const { return static_cast<std::uint32_t>(parts_.size() - 1); }
  void add(plan::TransferOp op, Range of_piece, std::span<const Message> messages,
           const topology::Route& links);
  Numbers& here(Rank rank, std::uint32_t chunk) {
    return here_[rank.index() * parts_.back().chunks + chunk];
  }
  const topology::Route& usual_route(Rank src, Rank dst);
  std::vector<Bandwidth> rates_of_moves(Pace pace) const;

  std::string name_;
  ScheduleRequest request_;
  plan::Collective what_;
  std::vector<plan::DeviceRates> devices_;  ///< by rank
  std::map<std::pair<Rank, Rank>, topology::Route> usual_routes_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> weights_;  ///< of chunks
  std::vector<Rank> owners_;            ///< the same
  std::int64_t whole_ = 0;              ///< weight of all parts
  Cuts cuts_;
  std::vector<Message> messages_;
  std::vector<Step> steps_;
  std::vector<Move> moves_;    ///< the same, to be paced
  Numbers step_of_;            ///< by message
  std::int64_t weight_ = 0;    ///< of a chunk of each piece of the part that is being described
  std::vector<Numbers> here_;  ///< what brought a chunk of it, by rank and chunk
};

}  // namespace rackrail::planner
