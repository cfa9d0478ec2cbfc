// What programs of other executors ask of a schedule: chunks of one size, without codecs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan {

/// Throws ConfigError that names the schedule.
[[noreturn]] void refuse_schedule(const TransferGraph& graph, std::string found,
                                  std::string expected);

/// Throws ConfigError for a schedule with codecs.
void require_no_codecs(const TransferGraph& graph);

/// Contiguous units.
struct UnitRange {
  int begin = 0;
  int count = 0;
};

/// Places of a graph's chunks in units of equal size: the parts of the ranks in order, where the
/// collective has parts.
class EqualChunks {
 public:
  /// `format` is for messages. Throws ConfigError where the owners' parts are not equal, and for
  /// chunks so unequal that there would be more than 4,096 units.
  EqualChunks(const TransferGraph& graph, const char* format);

  int total() const { return total_; }
  int begin(std::size_t chunk) const { return begins_[chunk]; }
  int count(std::size_t chunk) const { return counts_[chunk]; }

  /// The chunks in their order as runs that are contiguous in units, none longer than `most`.
  std::vector<UnitRange> runs(std::span<const std::uint32_t> chunks, int most) const;

 private:
  void place_chunks(const TransferGraph& graph, const char* format);

  int total_ = 0;
  std::vector<int> counts_;  // by chunk
  std::vector<int> begins_;  // likewise
};

}  // namespace rackrail::plan
