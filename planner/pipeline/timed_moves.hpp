// Moves of chunks between ranks, each with the time at which it is to begin in a schedule of even
// steps, as a transfer graph in the order of these times: what bypass_rings.hpp writes its
// all-reduces with.
//
// A chunk's moves are given one after the other as they follow from each other. Each waits for what
// has come to its sender since the chunk began: all sums, or the one copy after which what came
// before is no more to be waited for. None is earlier than what it waits for. The order matters by
// rule 5 of plan/transfer_graph.hpp. Chunks that begin together may be moved together, as far as
// they are neighbours: such a move waits for what any of them waits for.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/pipeline/builder.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

struct TimedMove {
  double time = 0;  ///< in any unit, the same for all
  plan::TransferOp op = plan::TransferOp::kReduce;
  Rank src;
  Rank dst;
  GraphBuilder::Range range;
  std::vector<std::uint32_t> after;  ///< numbers of moves
};

class TimedMoves {
 public:
  /// Weights of chunks are multiples of one of `units` parts of the buffer.
  TimedMoves(std::size_t ranks, double units) : units_(units), here_(ranks) {}

  /// What follows moves a chunk of its own, of such a share of the buffer.
  void begin_chunk(double share) { begin_chunks({&share, 1}); }
  /// The same with several, which moves tell apart.
  void begin_chunks(std::span<const double> shares);
  /// Returns the move's number: they count from 0 on. The range is one of the chunks that began
  /// last.
  std::uint32_t reduce(Rank src, Rank dst, double time, GraphBuilder::Range range = {});
  std::uint32_t copy(Rank src, Rank dst, double time, GraphBuilder::Range range = {});

  /// Adds to what a move waits for others that are before it in order. Asked for each move once, in
  /// this order.
  using WaitMore = std::function<void(std::uint32_t number, const TimedMove& move,
                                      std::vector<std::uint32_t>& after)>;
  /// Of moves at the same time, those that were given first come first. Routes and codecs are as
  /// GraphBuilder has them.
  plan::TransferGraph graph(const std::string& name, const ScheduleRequest& request,
                            const WaitMore& wait_more = {}) const;

 private:
  using Numbers = std::vector<std::uint32_t>;
  std::uint32_t add(plan::TransferOp op, Rank src, Rank dst, double time,
                    GraphBuilder::Range range);

  double units_;
  std::vector<std::uint32_t> weights_;  ///< of chunks
  std::vector<TimedMove> moves_;
  std::size_t first_ = 0;                   ///< of the chunks that began last
  std::vector<std::vector<Numbers>> here_;  ///< by rank and chunk, what its part of that waits for
};

}  // namespace rackrail::planner
