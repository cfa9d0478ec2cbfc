// The rails of a plan, for one rank: which of its machine's adapters meets which of a peer's.
//
// A route leaves the sender's machine through an adapter, the first of its links that belongs to
// one (plan::Plan::adapters), and enters the receiver's through the last such one. Every pair of
// adapters that a transfer between two ranks uses, in whichever direction, is one rail of the two
// ranks. Both ranks give a rail the same number, from 1: sorted by the adapter of the lower rank,
// then by that of the higher one, in the plan's order. Transfers inside a machine and those without
// a route have no rail: 0.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "plan/plan.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

class PlanRails {
 public:
  /// Rails of the schedules that buckets have. O(transfers of them).
  PlanRails(const plan::Plan& plan, Rank self);

  /// For Transport::use_rails(), by peer and number.
  const std::vector<Rail>& all() const { return all_; }
  /// The number of a transfer's rail, which this rank sends or receives.
  std::uint32_t number_of(const plan::TransferGraph& graph, const plan::Transfer& transfer) const;

 private:
  /// Numbers of adapters in the plan: the lower rank's, the higher rank's.
  using Ends = std::pair<std::size_t, std::size_t>;

  std::optional<Ends> ends_of(const plan::TransferGraph& graph,
                              const plan::Transfer& transfer) const;

  Rank self_;
  std::unordered_map<LinkId, std::size_t> sends_by_;  ///< adapter, by link
  std::unordered_map<LinkId, std::size_t> receives_by_;
  std::map<Rank, std::map<Ends, std::uint32_t>> numbers_;  ///< by peer
  std::vector<Rail> all_;
};

}  // namespace rackrail::runtime
