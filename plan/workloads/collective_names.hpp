// Collectives and types of elements by the names that traces give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace rackrail::plan {

enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kReduce,
  kSendReceive,
  kOther,  ///< a barrier, or what the trace does not name
};

/// "all-reduce", "send and receive".
std::string_view name_of(CollectiveKind kind);

/// Of names such as "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "_reduce_scatter_base",
/// "nccl:all_to_all", "ALLGATHER"; kOther for a name of none.
CollectiveKind collective_of(std::string_view name);

/// Bytes of one element: "Float", "c10::BFloat16", "long int", "f32"; none for a name of none.
std::optional<std::int64_t> width_of_type(std::string_view name);

/// Bus bandwidth over algorithm bandwidth among so many ranks, as nccl-tests has it (its
/// doc/PERFORMANCE.md).
double bus_factor(CollectiveKind kind, std::int64_t ranks);

}  // namespace rackrail::plan
