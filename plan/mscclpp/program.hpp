// Execution plans of MSCCL++: JSON that says for every GPU which thread blocks put, wait and add
// what, in which order.
//
// A block's threads run its operations in order, without waiting for each other but at a `nop`. A
// put writes a peer's buffer, over a memory channel by the block's own stores, over a port channel
// by the NIC. What was put is there once the peer has waited for a signal that came after it on the
// same channel. Buffers are divided into equal chunks, and scratch is counted in chunks of the same
// size. The k-th channel from a to b is joined to the k-th from b to a.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/transfer_graph.hpp"

namespace rackrail::plan::mscclpp {

// Limits of the executor (src/core/include/execution_common.hpp).
inline constexpr std::size_t kMostOperations = 64;   ///< per thread block
inline constexpr std::size_t kMostChannels = 16;     ///< per thread block and type
inline constexpr std::size_t kMostBuffers = 16;      ///< likewise: buffers of peers
inline constexpr std::size_t kMostPerOperation = 8;  ///< channels of an operation
inline constexpr std::size_t kMostInputs = 10;       ///< summands of an addition
inline constexpr std::uint64_t kAlignment = 16;      ///< bytes, of each chunk

enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };
enum class ChannelType : std::uint8_t { kMemory, kPort };
inline constexpr std::array kChannelTypes{ChannelType::kMemory, ChannelType::kPort};

template <typename T>
using ByType = std::array<T, 2>;  ///< by ChannelType

template <typename T>
T& of(ByType<T>& values, ChannelType type) {
  return values[static_cast<std::size_t>(type)];
}
template <typename T>
const T& of(const ByType<T>& values, ChannelType type) {
  return values[static_cast<std::size_t>(type)];
}

enum class OperationType : std::uint8_t {
  kSynchronize,        ///< nop: the block's threads wait for each other
  kSignal,             ///< signal
  kWait,               ///< wait
  kPut,                ///< put
  kPutSignalAndFlush,  ///< pwsf: waits until the NIC has read the source
  kReduce,             ///< re: the target is the sum of the sources, in their order
};

/// Chunks of a buffer: the GPU's own, or the peer's that has this number in the block's list.
struct Place {
  Buffer buffer = Buffer::kInput;
  int remote = -1;  ///< -1: the GPU's own
  int index = 0;    ///< in chunks
  int count = 0;
};

struct Operation {
  OperationType type = OperationType::kSynchronize;
  ChannelType channel_type = ChannelType::kMemory;
  std::vector<int> channels;  ///< numbers in the block's list of that type
  std::vector<Place> sources;
  std::vector<Place> targets;
};

struct RemoteBuffer {
  int rank = 0;
  Buffer buffer = Buffer::kInput;
  ChannelType access = ChannelType::kMemory;
  bool operator==(const RemoteBuffer&) const = default;
};

struct ThreadBlock {
  std::vector<Operation> operations;
  ByType<std::vector<int>> channels;  ///< numbers in the GPU's list of that type
  ByType<std::vector<int>> buffers;   ///< numbers in Gpu::remote_buffers
  /// The block moves this one of so many slices of what its operations say.
  int slice = 0;
  int slices = 1;
};

struct Gpu {
  int input_chunks = 0;
  int output_chunks = 0;
  int scratch_chunks = 0;
  ByType<std::vector<int>> channels;  ///< the ranks that they lead to
  std::vector<RemoteBuffer> remote_buffers;
  std::vector<ThreadBlock> blocks;
};

/// Works in place.
struct Program {
  std::string name;
  Collective collective = Collective::kAllReduce;
  /// Of the larger of input and output. The least is so large that no slice is empty, the most what
  /// offsets of 32 bits can say.
  std::uint64_t least_bytes = 0;
  std::uint64_t most_bytes = 0;
  std::vector<Gpu> gpus;  ///< by rank
};

std::string to_json(const Program& program);

}  // namespace rackrail::plan::mscclpp
