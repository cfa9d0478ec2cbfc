// The messages of one group of thread blocks, and the order in which each rank sends, awaits and
// adds them.
//
// The chunks of a buffer are divided among groups: the blocks of one number, one on each GPU. A
// group does with its chunks all that the schedule does with them. What touches other chunks needs
// no order (rule 4 of transfer_graph.hpp), so groups never wait for each other.
//
// In a group a rank goes through phases: it sends all that is ready and then awaits what comes. In
// the order of ids, sends only move forward past receipts of other chunks, and receipts move back
// behind sends of smaller ids. So all that touches one chunk stays in order, a send comes after
// receipts of smaller ids alone, and no rank waits for what waits for it.
//
// Complexity: O(messages · phases) for each rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plan/equal_chunks.hpp"
#include "plan/transfer_graph.hpp"

namespace rackrail::plan::mscclpp {

/// A contiguous part of a message.
struct Piece {
  UnitRange range;
  int slot = 0;  ///< where it arrives in the receiver's scratch, in units, if it is to be added
};

/// The part of a transfer that one group moves.
struct Message {
  TransferId id;
  Rank src;
  Rank dst;
  bool is_sum = false;
  std::vector<std::uint32_t> chunks;  ///< numbers in the group
  std::vector<Piece> pieces;          ///< not empty
  std::uint32_t signal = 0;  ///< of those from src to dst in the group, from 1: the one after it
  /// The last transfer of the mutual sum that it is of, else its own: until then nothing is added.
  TransferId added_at;
  std::optional<std::uint32_t> sum;  ///< number of the mutual sum
};

struct Phase {
  std::vector<std::size_t> sends;     ///< numbers of messages
  std::vector<std::size_t> receives;  ///< likewise, in the order in which they are added
};

class Group {
 public:
  /// `chunks` of the graph in the order of their places. `scratch` by rank: the units in use, to
  /// which those of the group are added. `hosts` by rank: only messages within a host are read as
  /// soon as they are signalled.
  Group(const TransferGraph& graph, const EqualChunks& units, std::span<const std::uint32_t> chunks,
        std::span<const std::uint32_t> hosts, std::vector<int>& scratch);

  std::span<const Message> messages() const { return messages_; }
  /// Complete unless there is a crowded rank.
  std::span<const Phase> phases(Rank rank) const { return phases_[rank.index()]; }
  /// A rank that has more phases than a thread block may have operations, if any.
  std::optional<std::uint32_t> crowded_rank() const { return crowded_rank_; }

 private:
  struct Action {
    TransferId at;
    bool is_receipt = false;
    std::size_t message = 0;
    auto order() const { return std::pair(at, is_receipt); }
  };

  void add_messages(const EqualChunks& units, std::span<const std::uint32_t> chunks,
                    std::vector<int>& scratch);
  std::vector<std::vector<Action>> actions() const;
  void order(std::size_t rank, std::vector<Action> left);
  std::vector<std::size_t> take_sends(std::vector<Action>& left);
  bool may_follow(const Message& message, std::span<const std::size_t> sends) const;
  void number_signals();

  const TransferGraph& graph_;
  std::span<const std::uint32_t> hosts_;
  std::size_t chunk_count_;
  std::vector<Message> messages_;
  std::unordered_map<std::uint32_t, std::size_t> message_of_;  ///< by transfer
  std::vector<bool> is_sent_;                                  ///< by message
  std::vector<std::vector<Phase>> phases_;                     ///< by rank
  std::optional<std::uint32_t> crowded_rank_;
};

}  // namespace rackrail::plan::mscclpp
