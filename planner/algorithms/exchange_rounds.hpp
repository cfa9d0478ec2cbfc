// Rounds of an exchange (exchange.hpp): how much of the buffer each has, and the parts in which the
// last step of a ring of groups goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/algorithms/exchange.hpp"

namespace rackrail::planner {

struct ExchangeRound {
  std::vector<std::uint32_t> parts;  ///< sizes, over all rounds
  /// By part of a ring of groups, where it ends in what goes the same way round, from 0 to 1.
  std::vector<double> ends;

  std::uint32_t size() const;
};

/// So many, at least one; `alternate`: every other one goes the other way round.
std::vector<ExchangeRound> rounds_of(const Exchange& exchange, plan::Collective what,
                                     std::size_t rounds, bool alternate);
/// In how many parts beyond one they are.
std::uint64_t more_parts(const std::vector<ExchangeRound>& rounds);

}  // namespace rackrail::planner
