// An all-reduce along trees of links between ranks, whose sums go to a root along the paths on
// which copies come back.
//
// Each tree has a part of the buffer, in pieces that take turns on the links (pacing.hpp). Near the
// root, where few arcs are and everything passes, a piece may go in smaller messages: what comes in
// small ones is there sooner, and only as few are more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plan/cost_model.hpp"
#include "plan/transfer_graph.hpp"
#include "planner/packing/pacing.hpp"
#include "planner/pipeline/builder.hpp"
#include "planner/pipeline/schedule_request.hpp"

namespace rackrail::planner {

/// An arc of a tree, away from its root.
struct PairedArc {
  Rank from;
  Rank to;
  bool is_whole = false;  ///< takes a piece in one message; so do all behind it
};

struct PairedTree {
  std::vector<PairedArc> arcs;  ///< after those that they follow
  std::size_t pieces = 1;
  std::uint32_t smaller = 1;  ///< times, messages along arcs that take no whole piece
  std::uint32_t weight = 1;   ///< of such a message, in any unit
};

/// Times the transfers that others may have: of deep trees pieces are what keeps links full.
inline constexpr std::uint64_t kTimesMoreTransfersOfTrees = 4;

class PairedTrees {
 public:
  /// `slices` of the largest transfers: the order of all is made for them. The request must outlive
  /// it.
  PairedTrees(std::string name, const ScheduleRequest& request, std::uint32_t slices);

  void add(const PairedTree& tree);
  /// Once.
  plan::TransferGraph take();

 private:
  using Numbers = std::vector<std::uint32_t>;

  /// What goes from rank to rank of each piece of a tree: chunks [begin, begin + count) of it.
  struct Message {
    Rank src;
    Rank dst;
    plan::TransferOp op = plan::TransferOp::kReduce;
    GraphBuilder::Range range;
  };

  void add_messages(plan::TransferOp op, const PairedArc& arc);
  void add_message(plan::TransferOp op, const PairedArc& arc, GraphBuilder::Range range);
  Numbers& here(Rank rank, std::uint32_t chunk) { return here_[rank.index() * smaller_ + chunk]; }
  const topology::Route& route(Rank src, Rank dst);
  std::uint32_t chunks_of(std::uint32_t tree) const;

  std::string name_;
  const ScheduleRequest& request_;
  std::vector<plan::DeviceRates> devices_;  ///< by rank
  std::map<std::pair<Rank, Rank>, topology::Route> routes_;
  std::vector<Message> messages_;
  std::vector<Move> moves_;  ///< of these
  Cuts cuts_;
  std::vector<std::uint32_t> first_chunk_;  ///< of each tree
  std::vector<std::uint32_t> weights_;      ///< of chunks
  std::int64_t whole_ = 0;
  // Of the tree that is added: messages near the root to a whole one, the weight of those of all
  // its pieces, and by rank and chunk of a piece what its part waits for.
  std::uint32_t smaller_ = 1;
  std::int64_t weight_ = 0;
  std::vector<Numbers> here_;
};

}  // namespace rackrail::planner
