// Which operation a table of nccl-tests is of. Before version 2.17 the log does not say.
//
// Every test prints busbw = factor · algbw, of n ranks: 2 (n − 1)/n for all-reduce, (n − 1)/n for
// reduce-scatter, all-gather, all-to-all, gather and scatter, 1 for broadcast, reduce and messages.
// A reduction (`redop`) and a root narrow it down. All-gather and all-to-all differ little: of the
// latter results in place are not checked ("N/A"), and up to 2.10 its redop is blank.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "sim/measured/operation.hpp"

namespace rackrail::sim::measured {

struct Evidence {
  std::size_t ranks = 0;
  std::optional<double> factor;  ///< busbw / algbw, of the row that says it most exactly
  bool has_reduction = false;
  bool has_root = false;
  bool has_unchecked_results = false;  ///< in place only
  bool has_blank_reduction = false;    ///< under a head
};

struct Inferred {
  Operation operation = Operation::kUnknown;
  std::string_view reason;
};

Inferred infer(const Evidence& evidence);

/// busbw / algbw. None for kUnknown.
std::optional<double> bus_factor(Operation operation, std::size_t ranks);

}  // namespace rackrail::sim::measured
