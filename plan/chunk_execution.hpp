// The symbolic state of one chunk on all ranks while a transfer graph is executed in id order.
//
// A rank holds a set of contributions (a bit per rank) and a value identity: a hash of the
// expression that made the value, so that equal identities mean equal bits (a + b and b + a are
// equal in floating point, (a + b) + c and a + (b + c) are not). What a lossy transfer sends
// follows encoding_source.hpp. A code of its own is a function of the value, the codec and, unless
// the codec is elementwise, the range that is encoded and for reductions the rank, because
// contributions of different ranks are rounded independently.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "plan/access_order.hpp"
#include "plan/encoding_source.hpp"
#include "plan/problem_list.hpp"
#include "plan/transfer_graph.hpp"

namespace rackrail::plan {

/// Keeps references to graph and problems.
class ChunkExecution {
 public:
  ChunkExecution(const TransferGraph& graph, ProblemList& problems);

  /// Executes the transfers that move `chunk`, in id order, and checks what each rank ends with.
  void run(std::uint32_t chunk, std::span<const TransferId> transfers);

 private:
  struct Value {
    bool defined = false;
    std::uint8_t fixed_by = 0;  ///< elementwise codec that changes nothing any more; 0: none
    std::uint64_t identity = 0;
  };

  void begin(std::uint32_t chunk);
  void apply(TransferId id);
  void apply_sum(const TransferGroup& sum);
  Value sent_value(TransferId id) const;
  std::uint64_t sent_bytes(TransferId id) const;
  void check_end();
  void check_contributions(Rank rank, std::span<const std::uint64_t> expected);
  std::span<std::uint64_t> contributions(Rank rank);
  std::string place(Rank rank) const;

  const TransferGraph& graph_;
  ProblemList& problems_;
  AccessOrder order_;
  std::vector<EncodingSource> sources_;
  std::vector<TransferGroup> sums_;  ///< mutual sums that are right
  std::uint32_t chunk_ = 0;
  std::size_t words_;          ///< 64-bit words of one rank's set
  std::vector<Value> values_;  ///< by rank
  std::vector<Value> sent_;    ///< by transfer, of those of the chunk that were executed
  std::vector<std::uint64_t> contributions_;
};

}  // namespace rackrail::plan
