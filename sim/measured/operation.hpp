// Names in measurements: operations, algorithms and protocols, however a program spells them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/nccl/model.hpp"

namespace rackrail::sim::measured {

/// What benchmarks measure: the collectives of NCCL, and its messages.
enum class Operation : std::uint8_t {
  kUnknown,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kSendReceive,
  kHypercube
};

std::string_view to_string(Operation operation);

/// "AllReduce", "all_reduce_perf", "ncclAllReduce", "sendrecv_perf_mpi" …; kUnknown for others.
Operation parse_operation(std::string_view name);

/// Lower case without anything but letters and digits: "NVLSTree", "nvls-tree" → "nvlstree".
std::string plain(std::string_view text);

/// "nvls-tree", "NVLSTree", "ring", "LL128" …; none for "default", "auto" and nothing at all.
/// Throws ConfigError that lists the known names.
nccl::Choice parse_choice(const std::string& algorithm, const std::string& protocol);

}  // namespace rackrail::sim::measured
