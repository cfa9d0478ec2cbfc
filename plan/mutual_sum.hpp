// Mutual sums: every one of several ranks sends what it has of a range to every other one, and each
// adds what it gets (rule 9 of transfer_graph.hpp).
//
// Two ranks that swap and add are one step of recursive doubling; n ranks that do so are an
// all-reduce in one step. Without the rule neither could be said in place: what arrives would be
// added to what is still to be sent. All members add in the order of ranks, so all hold the same
// bits. They send FP32: a code would be decoded everywhere but at its own sender.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan {

/// Why these transfers are no mutual sum, if so. The transfers of one are in the order of their
/// sources, and of one source in the order of destinations.
std::optional<std::string> mutual_sum_problem(const TransferGraph& graph, const TransferGroup& sum);

/// Which ranks take part, ascending. Precondition: no problem.
std::vector<Rank> mutual_sum_members(const TransferGraph& graph, const TransferGroup& sum);

/// Which mutual sum a transfer is of.
class MutualSums {
 public:
  /// Keeps a reference. O(1).
  explicit MutualSums(const TransferGraph& graph) : graph_(graph) {}
  /// Null when it is of none. O(log sums).
  const TransferGroup* sum_of(TransferId id) const;

 private:
  const TransferGraph& graph_;
};

}  // namespace rackrail::plan
