// The chunks of an exchange (exchange.hpp): a digit for each level, and who has which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "planner/algorithms/exchange.hpp"
#include "planner/algorithms/exchange_ways.hpp"

namespace rackrail::planner {

class ChunkDigits {
 public:
  /// Of groups of several sizes a digit has at most so many values for each member of the largest
  /// one. The part must outlive it.
  ChunkDigits(const ExchangePart& part, std::size_t per_member);

  /// Whether there are too many chunks; then nothing else can be asked for.
  bool is_too_large() const;
  std::size_t chunk_count() const { return prefixes_.back(); }
  Way way(std::size_t l) const { return part_.levels[l].way; }
  std::size_t values(std::size_t l) const { return values_[l]; }
  /// Of the digits before that of the level.
  std::size_t prefixes_before(std::size_t l) const { return l == 0 ? 1 : prefixes_[l - 1]; }
  /// Chunks with the same digits up to that of the level.
  std::size_t width(std::size_t l) const { return chunk_count() / prefixes_[l]; }

  /// Where a member of a group of the level has the chunks with such digits up to the level's.
  Rank holder(std::size_t l, std::size_t member, std::size_t prefix) const {
    return l == 0 ? part_.hierarchy.rank_at(member)
                  : holders_[l - 1][member * prefixes_[l - 1] + prefix / values_[l]];
  }
  /// Who sums up a chunk of a round in the end, or where it is before copies: who carries it.
  Rank carrier(std::size_t chunk) const { return holders_.back()[chunk]; }
  /// Who owns it.
  Rank home(std::size_t chunk) const;
  /// None where rails carry equal parts.
  const LineLane* lane(std::size_t chunk) const {
    return part_.lanes.empty() ? nullptr : &part_.lanes[chunk / width(0)];
  }
  /// Of a level's digit, in groups of so many members.
  std::vector<DigitRun> runs(std::size_t l, std::size_t members) const;

 private:
  std::size_t values_of(std::size_t l, std::size_t per_member) const;
  /// The member that a value of the level's digit stands for.
  std::size_t owner(std::size_t l, std::size_t members, std::size_t value) const;

  const ExchangePart& part_;
  std::vector<std::size_t> values_;         ///< by level
  std::vector<std::size_t> prefixes_;       ///< by level: of digits up to its own
  std::vector<std::vector<Rank>> holders_;  ///< by level, then group and digits
};

/// By chunk of a round, in lowest terms: the part's own, else such that every rank owns as much; of
/// an all-reduce equal ones, or as rails carry. None where ranks must own as much and cannot.
std::optional<std::vector<std::uint32_t>> weights_of(const ExchangePart& part,
                                                     const ChunkDigits& digits,
                                                     plan::Collective what);

}  // namespace rackrail::planner
